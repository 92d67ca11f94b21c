"""Inducing features: what the variational posterior knows of a layer's function."""

from overtone.features.base import AbstractInducingFeatures, PerDimension
from overtone.features.fourier import FourierFeatures
from overtone.features.integral import IntegralFeatures, OperatorFeatures
from overtone.features.pinned import PinnedFourierFeatures
from overtone.features.points import InducingPoints
from overtone.features.products import PairProducts

__all__ = [
    "AbstractInducingFeatures",
    "FourierFeatures",
    "InducingPoints",
    "IntegralFeatures",
    "OperatorFeatures",
    "PairProducts",
    "PerDimension",
    "PinnedFourierFeatures",
]
