"""One fit of one data set: the figures of docs/inference.md.

    OVERTONE_DATA=folder python -m benchmarks.trial uci_kin8nm n_inducing=10 max_steps=500 learning_rate=0.03

Settings are those of DeepGPRegressor. Test log density and RMSE are of the standardised target.
"""

import json
import sys
from ast import literal_eval

import numpy as np

from benchmarks.tables import load, split
from overtone.sklearn import DeepGPRegressor


def trial(name: str, seed: int = 0, **settings) -> dict:
    X, y = load(name)
    train, test = split(name, len(X), seed)
    y = (y - y[train].mean()) / y[train].std()
    model = DeepGPRegressor(**{"random_state": seed, **settings}).fit(X[train], y[train])
    low, high = model.predict_quantiles(X[test], [0.025, 0.975])
    return {
        "seconds": model.history_.seconds,
        "log_density": float(np.mean(model.log_predictive_density(X[test], y[test]))),
        "rmse": float(np.sqrt(np.mean((model.predict(X[test]) - y[test]) ** 2))),
        "coverage": float(np.mean((y[test] > low) & (y[test] < high))),
        "steps": len(model.history_.loss),
        "residual_fraction": model.residual_fraction(X[test]),
        "held_out": max((score for _, score in model.history_.scores), default=None),
    }


def _value(text: str):
    try:
        return literal_eval(text)
    except ValueError:
        return text  # a name, such as vff


if __name__ == "__main__":
    chosen = dict(argument.split("=", 1) for argument in sys.argv[2:])
    print(json.dumps(trial(sys.argv[1], **{key: _value(text) for key, text in chosen.items()})))
