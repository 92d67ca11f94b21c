"""A layer: one sparse variational GP with P outputs.

f(x) = m(z) + g(h) + noise, z = scaling(x), h = projection(z), where g is a zero-mean GP known through the whitened
inducing variables v of its features, and q(v) is free. Further processes of the same inputs may be added.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from overtone.features.base import AbstractInducingFeatures
from overtone.kernels import AbstractKernel
from overtone.means import AbstractMean
from overtone.params import Param
from overtone.scaling import Affine, Columns, Identity, Projection, WithWaves
from overtone.variational import AbstractGaussian


class GPLayer(eqx.Module):
    """Kernel x features x q(v) x mean function."""

    kernel: AbstractKernel
    features: AbstractInducingFeatures
    q: AbstractGaussian
    mean_function: AbstractMean
    scaling: Affine | WithWaves
    noise: Param  # variance added between layers; 0 at the output
    projection: Identity | Projection | Columns = Identity()
    added: "GPLayer | None" = None  # a further process of the same inputs, to which another one may be added

    @property
    def num_outputs(self) -> int:
        return self.q.mean.shape[1]

    def place(self, X: Float[Array, "N D"]) -> tuple[Float[Array, "N C"], Float[Array, "N J"]]:
        """The inputs as the mean function sees them, and as the features do."""
        Z = self.scaling(X)
        return Z, self.projection(Z)

    def __call__(self, X: Float[Array, "N D"]) -> tuple[Float[Array, "N P"], Float[Array, "N P"]]:
        """Mean and variance of f(x) under q."""
        Z, H = self.place(X)
        mean, var = self.features.marginals(self.kernel, self.q, H)
        more = self.added(X) if self.added else (0.0, 0.0)
        return mean + self.mean_function(Z) + more[0], var + self.noise + more[1]

    def kl(self, added_weight: float = 1.0) -> Float[Array, ""]:
        """KL(q(v) || p(v)); that of added processes may be made to count less than it should."""
        return self.q.kl() + (added_weight * self.added.kl() if self.added else 0.0)

    def draw(self, key: PRNGKeyArray, row_key: PRNGKeyArray, X: Float[Array, "N D"]) -> Float[Array, "N P"]:
        """One function under q, at all rows together.

        `key` decides the part carried by the inducing variables, one coherent function A^T v; `row_key` the
        residual that they leave unexplained, drawn for each row on its own. Each row's marginal is exact.
        """
        Z, H = self.place(X)
        v = jnp.swapaxes(self.q.sample(key), 0, 1).reshape(self.num_outputs, -1)
        A = self.features.whitened(self.kernel, H)
        std = jnp.sqrt(self.features.unexplained(self.kernel, A, H) + self.noise)
        eps = jax.random.normal(row_key, (X.shape[0], self.num_outputs), H.dtype)
        key, row_key = jax.random.fold_in(key, 1), jax.random.fold_in(row_key, 1)
        more = self.added.draw(key, row_key, X) if self.added else 0.0
        return self.mean_function(Z) + A.T @ v.T + std[:, None] * eps + more

    def draw_prior(self, key: PRNGKeyArray, X: Float[Array, "N D"]) -> Float[Array, "N P"]:
        """One function under the prior, at all rows together: exact, by a Cholesky factor of K(X, X), O(N^3)."""
        Z, H = self.place(X)
        widest = jax.dtypes.canonicalize_dtype(jnp.float64)
        noise = self.noise + 4 * X.shape[0] * jnp.finfo(widest).eps * self.kernel.diag(H)
        K = (self.kernel.gram(H, H) + jnp.diag(noise)).astype(widest)
        eps = jax.random.normal(key, (X.shape[0], self.num_outputs), H.dtype)
        more = self.added.draw_prior(jax.random.fold_in(key, 1), X) if self.added else 0.0
        return self.mean_function(Z) + jnp.linalg.cholesky(K).astype(H.dtype) @ eps + more
