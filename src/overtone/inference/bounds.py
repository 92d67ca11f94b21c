"""Two more objectives, from the literature on deep GPs."""

import equinox as eqx
import jax
import jax.numpy as jnp

from overtone.gp.likelihoods.base import expected_log_prob
from overtone.inference.objective import AbstractObjective, KLWeights, Progress
from overtone.numerics.params import unwrap


class ImportanceWeighted(AbstractObjective):
    """The importance-weighted bound: E[log mean_k exp E[log p(y | f_k)]] - KL over K draws of the hidden layers.

    The inner expectation is over the output layer, in closed form or by quadrature. It lies between the ELBO and the
    evidence, and equals the ELBO for one draw (Salimbeni et al. 2019, with the hidden layers as latent variables).
    """

    num_samples: int = eqx.field(static=True, default=4)
    kl: KLWeights = KLWeights()
    full_batch = False

    def init(self, model, data):
        return model, Progress.start(data)

    def loss(self, model, state, key, batch):
        model, (X, y) = unwrap(model), batch
        inputs, mean, var = model.propagate(model.draw_noise(key, self.num_samples, X.shape[0]), X)[-1]
        each = expected_log_prob(model.likelihood_at(inputs), y, mean, var)
        return _regularised(self, model, state, each, X)


class PredictiveDensity(AbstractObjective):
    """The log density of the prediction minus the divergence: the objective of deep sigma point processes.

    log mean_k E[p(y | f_k)] - KL is what a prediction is judged by, and no bound of the evidence (Jankowiak,
    Pleiss, Gardner 2020; their quadrature sites are replaced by draws).
    """

    num_samples: int = eqx.field(static=True, default=8)
    kl: KLWeights = KLWeights()
    full_batch = False

    def init(self, model, data):
        return model, Progress.start(data)

    def loss(self, model, state, key, batch):
        model, (X, y) = unwrap(model), batch
        inputs, mean, var = model.propagate(model.draw_noise(key, self.num_samples, X.shape[0]), X)[-1]
        each = model.likelihood_at(inputs).log_predictive(jnp.nan_to_num(y), mean, var)
        each = jnp.where(jnp.isnan(y[:, : each.shape[-1]]), 0, each)
        return _regularised(self, model, state, each, X)


def _regularised(objective, model, state: Progress, each, X):
    """Return minus the log of the mean over draws (S, N, P) per row, plus the divergence, and the next state."""
    fit = jnp.sum(jax.nn.logsumexp(each, axis=0) - jnp.log(len(each)).astype(X.dtype)) / X.shape[0]
    kl = objective.kl.hidden(model, state.step, X.dtype) + model.layers[-1].kl() + model.likelihood.kl()
    return kl / state.num_data - fit, state.next()
