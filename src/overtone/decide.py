"""What is left to the data: how many frequencies, how deep, which noise. Decided before anything is compiled."""

import warnings
from dataclasses import replace
from itertools import product

import numpy as np

from overtone.build import MOST_BLOCKS, hidden_width, num_columns, num_directions, num_features, seen, series_start
from overtone.config import Config
from overtone.fine import fine_inputs
from overtone.slanted import slanted_waves
from overtone.spectrum import frequencies

MOST_FEATURES = 3000  # whose joint covariance is affordable
SERIES_ROWS, TABLE_ROWS = 4096, 1024  # of a series, of a table, to take as one batch
FAR_MORE = 8
DEEP_FREQUENCIES, DEEP_PRODUCTS = 100, 200_000  # a long series with more cycles needs them more than depth
AUTO_FEATURES, FEWEST_FREQUENCIES, USUAL_POINTS = 1000, 4, 100
CLEARLY, MOST_PRODUCTS = 0.5, 40_000_000  # nats per row; rows times frequencies that are quick enough in closed form
SERIES_GROWTHS, SERIES_KERNELS = (1, 1.4), ("matern32", "matern52")  # to choose from
WORTH = 0.1  # nats per row, for the next to be chosen
TABLE_GROWTH = 3  # times as many frequencies for a table that turns out to need more


class TooFewFrequenciesWarning(UserWarning):
    """The model cannot follow the waves of its target."""


def resolved(config: Config, X: np.ndarray, y: np.ndarray) -> Config:
    """The config with all that it leaves to the data decided, but for the depth where both should be tried."""
    if config.waves == "auto":
        able = config.preset != "paper" and config.n_projections is None
        config = replace(config, waves=slanted_waves(X, seen(config, y)) if able else ())
    elif config.cycles and (X.shape[1] == 1 or any(len(wave) != X.shape[1] for wave in config.cycles)):
        raise ValueError(
            f"waves need several inputs, and cycles for each of them; got {config.waves!r} for {X.shape[1]} inputs."
        )
    columns = num_columns(config, X)
    if config.n_inducing == "auto":
        config = _grown(replace(config, n_inducing=_num_inducing(config, X, y)), X, y)
    elif (
        config.fourier
        and X.shape[1] == 1
        and FAR_MORE * int(config.n_inducing) < (needed := frequencies(X, seen(config, y)))
    ):
        warnings.warn(
            f"n_inducing={config.n_inducing} frequencies are far too few for this series, whose waves ask for about "
            f"{needed}; use n_inducing='auto', or more of them.",
            TooFewFrequenciesWarning,
            stacklevel=3,
        )
    if config.chooses_depth and X.shape[1] > 1:
        config = replace(config, n_layers=2)
    elif config.chooses_depth and _is_better_shallow(config, X, y):
        config = replace(config, n_layers=1)
    if config.num_layers > 1:
        config = replace(config, hidden_width=hidden_width(config, columns))
    if config.fine_inputs == "auto":
        able = config.pinned and config.num_layers > 1
        config = replace(config, fine_inputs=fine_inputs(X, seen(config, y)) if able else ())
    elif any(not 0 <= j < X.shape[1] for j in config.fine):
        raise ValueError(f"fine_inputs must be from 0 to {X.shape[1] - 1}; got {config.fine_inputs!r}.")
    if any(not 0 <= j < X.shape[1] for pair in config.pairs for j in pair):
        raise ValueError(f"pairs must be of inputs from 0 to {X.shape[1] - 1}; got {config.pairs!r}.")
    if config.covariance == "auto":
        blocks = num_directions(config, columns) * hidden_width(config, columns) if config.fourier else 1
        config = replace(config, covariance="mean-field" if blocks > MOST_BLOCKS else "block")
    if config.band_limited == "auto":
        config = replace(config, band_limited="yes" if _is_band_limited(config, X, y) else "no")
    output, likelihood = config.output, config.likelihood
    closed_form = config.likelihood_name == "gaussian" and not np.isnan(y).any()
    most_rows = SERIES_ROWS if X.shape[1] == 1 else max(TABLE_ROWS, config.batch_size)
    if output == "auto" and (len(X) <= most_rows or config.limited) and closed_form:
        output = "collapsed"
    if output == "auto":
        most = MOST_FEATURES / seen(config, y).shape[1] ** 0.5  # each function has a covariance of its own
        output = "adam" if config.preset == "paper" or num_features(config, columns) > most else "natural"
    if output == "collapsed" and not closed_form:
        raise ValueError("output='collapsed' needs likelihood='gaussian' and complete targets; use output='natural'.")
    if likelihood == "auto":
        likelihood = "flexible" if output == "natural" else "gaussian"
    return replace(config, output=output, likelihood=likelihood)


def _is_better_shallow(config: Config, X: np.ndarray, y: np.ndarray) -> bool:
    """Has a series so many cycles, or such clear ones, that one layer had better have all the time?"""
    num = int(config.n_inducing)
    if num <= DEEP_FREQUENCIES:
        return False
    return len(X) * num > DEEP_PRODUCTS or _is_band_limited(replace(config, n_layers=1), X, y)


def _grown(config: Config, X: np.ndarray, y: np.ndarray) -> Config:
    """More frequencies, and a smoother kernel, where the spectrum of a series says that they are worth it."""
    best, chosen, num = -np.inf, config, int(config.n_inducing)
    most = max(num, min(AUTO_FEATURES, len(X) // 3))
    for growth, kernel in product(SERIES_GROWTHS, SERIES_KERNELS if config.kernel == "auto" else (config.kernel,)):
        tried = replace(config, kernel=kernel, n_inducing=min(most, round(growth * num)))
        if (start := series_start(tried, X, y)) and start.bound > best + WORTH:
            best, chosen = start.bound, tried
    return chosen


def _is_band_limited(config: Config, X: np.ndarray, y: np.ndarray) -> bool:
    """Does the spectrum of a series have nothing beyond its last frequency, where a kernel would have something?"""
    if X.shape[1] > 1 or not config.pinned or config.chooses_depth or config.num_layers > 1:
        return False
    if config.likelihood_name != "gaussian" or np.isnan(y).any() or len(X) * int(config.n_inducing) > MOST_PRODUCTS:
        return False
    with_tail, without = (series_start(replace(config, band_limited=each), X, y) for each in ("no", "yes"))
    return with_tail is not None and without is not None and without.bound > with_tail.bound + CLEARLY


def _num_inducing(config: Config, X: np.ndarray, y: np.ndarray) -> int:
    if not config.fourier:
        return min(USUAL_POINTS, len(X))
    most = _affordable(config, X) if X.shape[1] > 1 else AUTO_FEATURES
    return max(FEWEST_FREQUENCIES, min(frequencies(X, seen(config, y)), most))


def larger(config: Config, X: np.ndarray) -> Config:
    """With more frequencies for each of several inputs, as many as are affordable; or the same, if it cannot grow."""
    num = int(config.n_inducing)
    if not config.pinned or X.shape[1] == 1 or config.output == "adam":
        return config
    return replace(config, n_inducing=max(num, min(TABLE_GROWTH * num, _affordable(config, X))))


def _affordable(config: Config, X: np.ndarray) -> int:
    """The most frequencies for each input of a layer."""
    columns = num_columns(config, X)
    widest = max(columns, hidden_width(config, columns)) if config.num_layers > 1 else columns
    return (AUTO_FEATURES // num_directions(config, widest) - 5) // 2
