"""Models as the autopilot builds them, in one call, and a series and a table for them."""

import numpy as np

from overtone.autopilot.build import build
from overtone.autopilot.config import Config
from overtone.autopilot.plan import Plan, plan
from overtone.gp.model import DeepGP

SERIES = np.linspace(0, 1, 600)[:, None]
WAVES = np.sin(2 * np.pi * 40 * SERIES)
LONG = np.linspace(0, 1, 2000)[:, None]
TABLE = np.random.default_rng(0).uniform(size=(3000, 4))


def planned(X: np.ndarray, y: np.ndarray, method: str = "id-dgp", **settings) -> Plan:
    """Return the plan of a config for inputs and targets (N, Q)."""
    config = Config(method, **settings)
    config.validate()
    return plan(config, X, y)


def built(X: np.ndarray, y: np.ndarray, method: str = "id-dgp", **settings) -> DeepGP:
    """Return the deepest model that a config asks for."""
    return build(planned(X, y, method, **settings), X, y)
