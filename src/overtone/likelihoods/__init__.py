"""Likelihoods p(y | f). A new one is one class with `log_prob` and a few lines about its functions."""

from overtone.likelihoods.base import AbstractLikelihood as AbstractLikelihood
from overtone.likelihoods.base import AbstractNoise as AbstractNoise
from overtone.likelihoods.classes import Bernoulli as Bernoulli
from overtone.likelihoods.classes import Softmax as Softmax
from overtone.likelihoods.counts import Poisson as Poisson
from overtone.likelihoods.flexible import FlexibleNoise as FlexibleNoise
from overtone.likelihoods.flexible import MixtureNoise as MixtureNoise
from overtone.likelihoods.gaussian import Gaussian as Gaussian
from overtone.likelihoods.gaussian import Heteroscedastic as Heteroscedastic
from overtone.likelihoods.student import StudentT as StudentT
