"""Two more objectives, from the literature on deep GPs."""

import equinox as eqx
import jax
import jax.numpy as jnp

from overtone.gp.likelihoods.base import expected_log_prob
from overtone.inference.objective import AbstractDrawn, KLWeights


class ImportanceWeighted(AbstractDrawn):
    """The importance-weighted bound: E[log mean_k exp E[log p(y | f_k)]] - KL over K draws of the hidden layers.

    The inner expectation is over the output layer, in closed form or by quadrature. It lies between the ELBO and the
    evidence, and equals the ELBO for one draw (Salimbeni et al. 2019, with the hidden layers as latent variables).
    """

    num_samples: int = eqx.field(static=True, default=4)
    kl: KLWeights = KLWeights()

    def fit(self, likelihood, y, mean, var):
        return _log_mean_exp(expected_log_prob(likelihood, y, mean, var))


class PredictiveDensity(AbstractDrawn):
    """The log density of the prediction minus the divergence: the objective of deep sigma point processes.

    log mean_k E[p(y | f_k)] - KL is what a prediction is judged by, and no bound of the evidence (Jankowiak,
    Pleiss, Gardner 2020; their quadrature sites are replaced by draws).
    """

    num_samples: int = eqx.field(static=True, default=8)
    kl: KLWeights = KLWeights()

    def fit(self, likelihood, y, mean, var):
        each = likelihood.log_predictive(jnp.nan_to_num(y), mean, var)
        return _log_mean_exp(jnp.where(jnp.isnan(y[:, : each.shape[-1]]), 0, each))


def _log_mean_exp(values):
    """Return the log of the mean over draws, the first axis."""
    return jax.nn.logsumexp(values, axis=0) - jnp.log(len(values)).astype(values.dtype)
