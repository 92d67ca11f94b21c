"""The scikit-learn estimators, and `load` for their files."""

from overtone.estimators.base import DeepGPEstimator
from overtone.estimators.classifier import DeepGPClassifier
from overtone.estimators.ranges import OutsideRangeWarning, UnseenCategoryWarning
from overtone.estimators.regressor import DeepGPRegressor

__all__ = ["DeepGPClassifier", "DeepGPRegressor", "OutsideRangeWarning", "UnseenCategoryWarning", "load"]

load = DeepGPEstimator.load  # of whichever kind
