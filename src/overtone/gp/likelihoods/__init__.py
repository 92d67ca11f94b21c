"""Likelihoods p(y | f). A new one is one class with `log_prob` and a few lines about its functions."""

from overtone.gp.likelihoods.base import AbstractFamily, AbstractLikelihood
from overtone.gp.likelihoods.classes import Bernoulli, Softmax
from overtone.gp.likelihoods.counts import NegativeBinomial, Poisson
from overtone.gp.likelihoods.noise import (
    AbstractNoise,
    FlexibleNoise,
    Gaussian,
    Heteroscedastic,
    MixtureNoise,
    StudentT,
)
