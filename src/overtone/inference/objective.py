"""Objectives: what training maximises, and what is carried from step to step.

An objective has three methods. `init` returns the model as it is trained and a first state; `loss` returns minus the
objective per row for a batch, and the next state; `finish` sets what is known better in closed form. A new objective is
one class, and `overtone.fit` takes it as it takes these.
"""

from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from overtone.gp.likelihoods.base import AbstractLikelihood, expected_log_prob
from overtone.gp.model import DeepGP, check_rows, columns
from overtone.numerics.params import unwrap
from overtone.storage.rows import RowView

MANY_STEPS = 10**9  # planned, until the loop says how many there are


class Rows(NamedTuple):
    """Inputs (N, D) and targets (N, Q): all rows, or those of a batch."""

    X: Any
    y: Any


def rows_of(model: Any, data: tuple[Any, Any]) -> Rows:
    """Return rows (X, y) in the precision of a model, with targets as columns; views of rows have both already."""
    dtype = next((leaf.dtype for leaf in jax.tree.leaves(model) if eqx.is_inexact_array(leaf)), None)
    if dtype is None:
        raise ValueError("the model has no arrays to train; call DeepGP(...).initialised(X, y) first.")
    X, y = data
    if not isinstance(X, RowView):
        X, y = np.asarray(X, dtype), columns(y).astype(dtype, copy=False)
    if isinstance(model, DeepGP):
        check_rows(X, y)
        _check_targets(model, y)
    return Rows(X, y)


def _check_targets(model: DeepGP, y: Any) -> None:
    """Raise an error if the targets are of another kind than those that the model was initialised with."""
    classes = model.likelihood.classes
    if classes and isinstance(y, RowView):
        return
    num, expected = model.likelihood.num_functions(y), model.output.num_outputs
    if num > expected if classes else num != expected:  # some rows need not have all classes
        raise ValueError(f"y asks for {num} functions, but the model was initialised with {expected} of them.")


class AbstractObjective(eqx.Module):
    """What training maximises."""

    full_batch: eqx.AbstractClassVar[bool]  # does it need all rows at each step?

    @abstractmethod
    def init(self, model: Any, data: Rows) -> tuple[Any, Any]:
        """Return the model as it is trained, and the state before the first step."""

    @abstractmethod
    def loss(self, model: Any, state: Any, key: PRNGKeyArray, batch: Rows) -> tuple[Float[Array, ""], Any]:
        """Return minus the objective per row, and the next state."""

    def told(self, state: Any, steps: Array) -> Any:
        """Return the state with the number of steps that are planned, where it has a place for it."""
        return eqx.tree_at(lambda s: s.planned, state, steps) if hasattr(state, "planned") else state

    def finish(self, model: Any, state: Any, key: PRNGKeyArray, data: Rows | None = None) -> Any:
        """Return the trained model with what these rows, or the state alone, say in closed form."""
        return model


class KLWeights(eqx.Module):
    """How much the divergence of hidden layers counts: from nothing to whole over some steps, addends less.

    These are `anneal_steps`, but at most a share of all steps that are planned. With other weights than 1 the
    objective bounds no evidence.
    """

    anneal_steps: int = eqx.field(static=True, default=0)
    addends: float = eqx.field(static=True, default=1.0)  # of the further layers of a sum of layers
    anneal_share: float = eqx.field(static=True, default=0.8)

    def hidden(self, model: DeepGP, state: Any, dtype: Any) -> Float[Array, ""]:
        """Return the weighted divergence of the hidden layers of an unwrapped model, in a state with its `step`."""
        kl = sum((layer.kl(self.addends) for layer in model.layers[:-1]), start=jnp.zeros((), dtype))
        if not self.anneal_steps:
            return kl
        steps = jnp.minimum(self.anneal_steps, self.anneal_share * state.planned)
        return kl * jnp.minimum(1, state.step / steps).astype(dtype)


class Progress(eqx.Module):
    """The step, the number of rows that batches stand for, and the number of steps that are planned."""

    step: Array
    num_data: Array
    planned: Array | np.ndarray = eqx.field(default_factory=lambda: np.asarray(MANY_STEPS, np.int32))

    @staticmethod
    def start(data: Rows) -> "Progress":
        return Progress(*map(jax.device_put, (np.zeros((), np.int32), np.asarray(len(data.X), data.X.dtype))))

    def next(self) -> "Progress":
        return Progress(self.step + 1, self.num_data, self.planned)


class AbstractDrawn(AbstractObjective):
    """How well draws through all layers explain the rows, minus the divergence, with all of q trained by gradients."""

    num_samples: eqx.AbstractVar[int]
    kl: eqx.AbstractVar[KLWeights]
    full_batch = False

    @abstractmethod
    def fit(self, likelihood: AbstractLikelihood, y: Array, mean: Array, var: Array) -> Float[Array, "N _"]:
        """Return what counts for each row, or each of its targets, given S draws of the output layer's moments."""

    def init(self, model, data):
        return model, Progress.start(data)

    def loss(self, model, state, key, batch):
        model, (X, y) = unwrap(model), batch
        inputs, mean, var = model.propagate(model.draw_noise(key, self.num_samples, X.shape[0]), X)[-1]
        fit = jnp.sum(self.fit(model.likelihood_at(inputs), y, mean, var)) / X.shape[0]
        kl = self.kl.hidden(model, state, X.dtype) + model.layers[-1].kl() + model.likelihood.kl()
        return kl / state.num_data - fit, state.next()


class Elbo(AbstractDrawn):
    """The evidence lower bound: doubly stochastic variational inference."""

    num_samples: int = eqx.field(static=True, default=1)
    kl: KLWeights = KLWeights()

    def fit(self, likelihood, y, mean, var):
        return jnp.mean(expected_log_prob(likelihood, y, mean, var), axis=0)


class ImportanceWeighted(AbstractDrawn):
    """The importance-weighted bound: E[log mean_k exp E[log p(y | f_k)]] - KL over K draws of the hidden layers.

    The inner expectation is over the output layer, in closed form or by quadrature. It lies between the ELBO and the
    evidence, and equals the ELBO for one draw (Salimbeni et al. 2019, with the hidden layers as latent variables). All
    targets of a row share its draws: y is all of them.
    """

    num_samples: int = eqx.field(static=True, default=4)
    kl: KLWeights = KLWeights()

    def fit(self, likelihood, y, mean, var):
        of_rows = jnp.sum(expected_log_prob(likelihood, y, mean, var), axis=-1, keepdims=True)
        return _log_mean_exp(of_rows)


class PredictiveDensity(AbstractDrawn):
    """The log density of the prediction minus the divergence: the objective of deep sigma point processes.

    log mean_k E[p(y | f_k)] - KL, for each target by itself, is what a prediction is judged by, and no bound of the
    evidence (Jankowiak, Pleiss, Gardner 2020; their quadrature sites are replaced by draws).
    """

    num_samples: int = eqx.field(static=True, default=8)
    kl: KLWeights = KLWeights()

    def fit(self, likelihood, y, mean, var):
        each = likelihood.log_predictive(jnp.nan_to_num(y), mean, var)
        return _log_mean_exp(jnp.where(jnp.isnan(y[:, : each.shape[-1]]), 0, each))


def _log_mean_exp(values):
    """Return the log of the mean over draws, the first axis."""
    return jax.nn.logsumexp(values, axis=0) - jnp.log(len(values)).astype(values.dtype)
