"""Likelihoods p(y | f). A new one is one class with `log_prob` and a few lines about its functions."""

from overtone.gp.likelihoods.base import AbstractFamily as AbstractFamily
from overtone.gp.likelihoods.base import AbstractLikelihood as AbstractLikelihood
from overtone.gp.likelihoods.base import AbstractNoise as AbstractNoise
from overtone.gp.likelihoods.classes import Bernoulli as Bernoulli
from overtone.gp.likelihoods.classes import Softmax as Softmax
from overtone.gp.likelihoods.counts import Poisson as Poisson
from overtone.gp.likelihoods.flexible import FlexibleNoise as FlexibleNoise
from overtone.gp.likelihoods.flexible import MixtureNoise as MixtureNoise
from overtone.gp.likelihoods.gaussian import Gaussian as Gaussian
from overtone.gp.likelihoods.gaussian import Heteroscedastic as Heteroscedastic
from overtone.gp.likelihoods.negative_binomial import NegativeBinomial as NegativeBinomial
from overtone.gp.likelihoods.student import StudentT as StudentT
