"""The scikit-learn estimators, and `load` for their files."""

import os

from overtone.estimators.base import DeepGPEstimator
from overtone.estimators.classifier import DeepGPClassifier
from overtone.estimators.ranges import OutsideRangeWarning
from overtone.estimators.regressor import DeepGPRegressor

__all__ = ["DeepGPClassifier", "DeepGPRegressor", "OutsideRangeWarning", "load"]


def load(path: str | os.PathLike) -> DeepGPEstimator:
    """Return the estimator that a file holds, of whichever kind."""
    return DeepGPEstimator.load(path)
