"""Likelihoods p(y | f). A new one is one class with `log_prob` and a few lines about its functions."""

from overtone.gp.likelihoods.base import AbstractFamily, AbstractLikelihood, AbstractNoise
from overtone.gp.likelihoods.classes import Bernoulli, Softmax
from overtone.gp.likelihoods.counts import Poisson
from overtone.gp.likelihoods.flexible import FlexibleNoise, MixtureNoise
from overtone.gp.likelihoods.gaussian import Gaussian, Heteroscedastic
from overtone.gp.likelihoods.negative_binomial import NegativeBinomial
from overtone.gp.likelihoods.student import StudentT
