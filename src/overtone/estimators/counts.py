"""Whether targets are counts, and over which exposures they were counted."""

import numpy as np

from overtone.autopilot.config import Config
from overtone.autopilot.names import LIKELIHOODS, part

MAX_MEAN_COUNT = 10.0  # counts of at most this mean are better taken as counts


def likelihood_of(config: Config, Y: np.ndarray, exposed: bool) -> str:
    """Return the likelihood that a config asks for; where it leaves this open, counts have one of their own."""
    if config.likelihood != "auto" and part(LIKELIHOODS, config.likelihood).classes:
        raise ValueError(f"likelihood={config.likelihood!r} is for classes; use DeepGPClassifier.")
    free = config.likelihood == "auto" and config.preset != "paper" and config.output != "collapsed"
    return "negative-binomial" if free and (exposed or _small_counts(Y)) else config.likelihood


def _small_counts(Y: np.ndarray) -> bool:
    """Return whether targets are whole numbers with zeros among them, not negative, more than two, small on average."""
    known = Y[~np.isnan(Y)]
    whole = np.all((known >= 0) & (known == np.floor(known)))
    return bool(whole and known.min() == 0 and known.mean() <= MAX_MEAN_COUNT and len(np.unique(known)) > 2)


def log_exposure(exposure, num: int) -> np.ndarray:
    """Return the logs (N, 1) of exposures, or zeros if there are none."""
    if exposure is None:
        return np.zeros((num, 1))
    values = np.asarray(exposure, np.float64).reshape(-1)
    if values.shape != (num,) or not np.all(np.isfinite(values) & (values > 0)):
        raise ValueError(f"exposure must be {num} positive numbers, one for each row.")
    return np.log(values)[:, None]
