"""Inducing features: what the variational posterior knows of a layer's function."""

from overtone.gp.features.band_limited import BandLimited
from overtone.gp.features.base import AbstractInducingFeatures, PerDimension
from overtone.gp.features.bsplines import BSplines
from overtone.gp.features.fourier import Fourier
from overtone.gp.features.pinned import PinnedFourier
from overtone.gp.features.points import InducingPoints
