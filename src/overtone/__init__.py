"""Overtone: deep Gaussian processes whose inducing variables live in the frequency domain."""

__version__ = "0.1.0"
