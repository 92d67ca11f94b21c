"""Fit one data set once, for the figures of docs/inference.md.

    OVERTONE_DATA=folder python -m benchmarks.trial uci_kin8nm n_inducing=10 max_steps=500 learning_rate=0.03

Settings are those of DeepGPRegressor. Test log density and RMSE are of the standardised target.
"""

import json
import sys
from ast import literal_eval

import jax
import numpy as np

from benchmarks.tables import load, split
from overtone.autopilot.config import Config
from overtone.autopilot.plan import plan
from overtone.autopilot.train import Parts, train
from overtone.gp import model as deep
from overtone.gp.diagnostics import residual_fraction
from overtone.gp.maps import standardise, unit_interval
from overtone.inference.predictions import over_rows
from overtone.numerics.compiling import keep_compiled_programs, quickly_compiled

DIAGNOSED_ROWS = 10_000  # at most


def trial(name: str, seed: int = 0, parts: Parts = Parts(), **settings) -> dict:  # noqa: B008
    """Fit the training rows of a table, perhaps with other parts than the library's, and test on the rest."""
    keep_compiled_programs()
    config = Config(**{"random_state": seed, **settings})
    config.validate()
    X, y = load(name)
    train_rows, test_rows = split(name, X, seed)
    X = unit_interval(X[train_rows])(X).astype(config.dtype)
    y = standardise(y[train_rows, None])(y[:, None]).astype(config.dtype)
    chosen = plan(config, X[train_rows], y[train_rows])
    model, history, *_ = train(chosen, X[train_rows], y[train_rows], parts=parts)

    X, y, key, num_draws = X[test_rows], y[test_rows], jax.random.key(config.random_state), config.n_predict_samples
    with jax.enable_x64(True):
        density, mean, below = over_rows(
            lambda *chunk: _tested(model, key, num_draws, *chunk), X, y, draws=num_draws if model.hidden_widths else 1
        )
        residuals = quickly_compiled(residual_fraction)(model, key, X[:DIAGNOSED_ROWS])
    return {
        "seconds": history.seconds,
        "log_density": float(np.mean(density)),
        "rmse": float(np.sqrt(np.mean((mean - y) ** 2))),
        "coverage": float(np.mean((below > 0.025) & (below < 0.975))),
        "steps": len(history.loss),
        "residual_fraction": [float(share) for share in residuals],
        "held_out": max((score for _, score in history.scores), default=None),
    }


@quickly_compiled
def _tested(model, key, num_draws: int, X, y):
    """Return log p(y), the mean of y, and the probability of values below y."""
    predicted = deep.predict(model, key, X, num_samples=num_draws)
    return deep.log_density(model, key, X, y, num_samples=num_draws), predicted.mean(), predicted.cdf(y)


def _value(text: str):
    try:
        return literal_eval(text)
    except ValueError:
        return text  # a name, such as vff


if __name__ == "__main__":
    chosen = dict(argument.split("=", 1) for argument in sys.argv[2:])
    print(json.dumps(trial(sys.argv[1], **{key: _value(text) for key, text in chosen.items()})))
