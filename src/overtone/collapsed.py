"""The output layer in closed form, for full-batch regression with Gaussian noise.

Given draws of its inputs, the optimal q(v) of the last layer has, with G = A^T its whitened features,
    precision  Lam = I + mean_s G_s^T G_s / noise,      mean  Lam^-1 c,   c = mean_s G_s^T y / noise.
Put into the bound it leaves (per output, summed over outputs; N rows)
    -N/2 log(2 pi noise) - |y|^2/(2 noise) + c^T Lam^-1 c/2 - log|Lam|/2 - sum residual/(2 noise) - KL(inner).
With fewer rows than features the same is computed from the matrix of the rows, G G^T.
For one layer this is Titsias' bound. For more it is slightly optimistic, since q adapts to the draws:
`with_optimal_output` fixes q from many draws, and the ELBO of that model with fresh draws is the honest one.

The condition number of Lam is about N / noise, so this one system is solved in double precision.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from overtone.likelihoods import Gaussian
from overtone.linalg import cholesky_of_sums, one_by_one
from overtone.model import DeepGP
from overtone.params import unwrap
from overtone.variational import Full


def collapsed_elbo(
    model: DeepGP,
    key: PRNGKeyArray,
    X: Float[Array, "N D"],
    y: Float[Array, "N P"],
    *,
    num_samples: int = 1,
) -> Float[Array, ""]:
    """The bound with the optimal q(v) of the output layer for the hidden draws of this call."""
    model = unwrap(model)
    noise, num_features = gaussian_noise(model), model.layers[-1].features.num_features
    num_samples = num_samples if len(model.layers) > 1 else 1
    few = num_samples * len(X) < num_features
    misfit, volume, left = (_by_rows if few else _by_features)(model, noise, key, X, y, num_samples)
    fit = -0.5 * (len(X) * jnp.log(2 * jnp.pi * noise) + misfit + volume + left / noise)
    kl = sum((layer.kl() for layer in model.layers[:-1]), start=jnp.zeros((), X.dtype))
    return jnp.sum(fit).astype(X.dtype) - kl


def _by_features(model: DeepGP, noise: Float[Array, " P"], key: PRNGKeyArray, X, y, num_samples: int):
    """|y|^2/noise - c^T Lam^-1 c, log|Lam| and the residual."""
    gram, projected, squares, left = statistics(model, key, X, y, jnp.ones(len(X)), num_samples=num_samples)

    def terms(Lam: Float[Array, "M M"], c: Float[Array, " M"]):
        chol = jnp.linalg.cholesky(Lam)
        return _square(chol, c), _log_det(chol)

    explained, volume = one_by_one(terms)(*_natural(gram, projected, noise))
    return squares / noise - explained, volume, left


def _by_rows(model: DeepGP, noise: Float[Array, " P"], key: PRNGKeyArray, X, y, num_samples: int):
    """The same from the covariances K = G G^T of the rows: y^T (noise + K)^-1 y, log|1 + K/noise|, the residual."""
    layer = model.layers[-1]
    H, target = _drawn(model, key, X, y, num_samples)
    A = layer.features.whitened(layer.kernel, H)
    G, target = (part.astype(noise.dtype) / num_samples**0.5 for part in (A.T, target))
    K, eye = G @ G.T, jnp.eye(len(G), dtype=noise.dtype)

    def terms(noise: Float[Array, ""], y: Float[Array, " R"]):
        chol = jnp.linalg.cholesky(eye + K / noise)
        return _square(chol, y) / noise, _log_det(chol)

    left = jnp.sum(layer.kernel.diag(H).astype(noise.dtype)) / num_samples - jnp.trace(K)
    return *one_by_one(terms)(noise, target.T), 0 * left if layer.features.band_limited else left


def _square(chol: Float[Array, "M M"], c: Float[Array, " M"]) -> Float[Array, ""]:
    """c^T (L L^T)^-1 c."""
    half = jax.scipy.linalg.solve_triangular(chol, c, lower=True)
    return half @ half


def _log_det(chol: Float[Array, "M M"]) -> Float[Array, ""]:
    return 2 * jnp.sum(jnp.log(jnp.diagonal(chol)))


def with_optimal_output(model: DeepGP, gram: Float[Array, "*P M M"], projected: Float[Array, "P M"]) -> DeepGP:
    """The model with the output layer's q(v) set to its optimum for these statistics, jointly over all features."""
    return with_output(model, optimal_output(model, gram, projected))


def with_output(model: DeepGP, q: tuple[Array, Array, Array]) -> DeepGP:
    """The model with this q(v) of the output layer: the mean, and the logs of the scales and the unit factor."""
    return eqx.tree_at(lambda m: m.layers[-1].q, model, Full(*q))


def optimal_output(model: DeepGP, gram: Float[Array, "*P M M"], projected: Float[Array, "P M"]) -> tuple:
    """The optimal q(v) of the output layer for these statistics, jointly over all features.

    Where rows differ in precision, it is relative to that of the usual noise, and outputs have their own matrices.
    """

    def optimum(Lam: Float[Array, "M M"], c: Float[Array, " M"]):
        """The mean, and the Cholesky factor of the covariance."""
        # Lam^-1 = J (J Lam J)^-1 J with J the reversal of rows: L^-T reversed twice is lower triangular.
        flipped = cholesky_of_sums(Lam[::-1, ::-1], rounding)
        eye = jnp.eye(len(Lam), dtype=Lam.dtype)
        root = jax.scipy.linalg.solve_triangular(flipped, eye, lower=True, trans=1)[::-1, ::-1]
        return root @ (root.T @ c), root

    dtype = model.layers[-1].q.mean.dtype
    rounding = float(jnp.finfo(dtype).eps)  # of the features, and so of their products
    mean, root = one_by_one(optimum)(*_natural(gram, projected, reference_noise(unwrap(model))))
    diagonal = jnp.diagonal(root, axis1=-2, axis2=-1)
    unit = jnp.swapaxes(root / diagonal[:, None], 0, 1)
    return tuple(part[None].astype(dtype) for part in (mean, jnp.log(diagonal), unit))


def best_scales(
    gram: np.ndarray, projected: np.ndarray, squares: np.ndarray, num_data: int, noises: np.ndarray, scales: np.ndarray
) -> tuple[float, np.ndarray]:
    """The factor of the kernel's variance, and the noise of each output, with the largest bound among those given.

    Without a residual the bound depends on both through the eigenvalues e of A A^T alone; with b = Q^T A y it is
        -N/2 log(2 pi noise) - (|y|^2 - sum scale b^2 / (noise + scale e))/(2 noise) - sum log(1 + scale e / noise)/2.
    """
    e, Q = np.linalg.eigh(gram)
    e, b = np.maximum(e, 0)[:, None], Q.T @ projected.T  # (M, 1), (M, P)
    found = []
    for scale in scales:
        explained = np.stack([np.sum(scale * b**2 / (noise + scale * e), axis=0) for noise in noises], axis=1)  # (P, K)
        misfit = np.maximum(squares[:, None] - explained, 0)
        volume = np.sum(np.log1p(scale * e / noises), axis=0)
        bound = -0.5 * (num_data * np.log(2 * np.pi * noises) + misfit / noises + volume)
        found.append((np.sum(np.max(bound, axis=1)), scale, noises[np.argmax(bound, axis=1)]))
    _, scale, noise = max(found, key=lambda each: each[0])
    return float(scale), noise


def statistics(
    model: DeepGP,
    key: PRNGKeyArray,
    X: Float[Array, "N D"],
    y: Float[Array, "N P"],
    weights: Float[Array, " N"],
    *,
    num_samples: int,
):
    """A A^T (M, M), A y (P, M), |y|^2 (P,) and the residual, summed over rows and averaged over the hidden draws."""
    model = unwrap(model)
    layer, num_samples = model.layers[-1], num_samples if len(model.layers) > 1 else 1
    weights = jnp.tile(weights.astype(jax.dtypes.canonicalize_dtype(jnp.float64)) / num_samples, num_samples)
    H, target = _drawn(model, key, X, y, num_samples)
    gram, projected = layer.features.normal_equations(layer.kernel, H, target, weights)
    left = weights @ layer.kernel.diag(H).astype(weights.dtype) - jnp.trace(gram)  # sum k - |A|^2
    left = 0 * left if layer.features.band_limited else left  # then no row may lie outside of [a, b]
    return gram, projected.T, weights @ target.astype(weights.dtype) ** 2, left


def _drawn(model: DeepGP, key: PRNGKeyArray, X: Float[Array, "N D"], y: Float[Array, "N P"], num_samples: int):
    """Inputs of the output layer, by draws through the hidden ones, and what it has to explain: rows of all draws."""
    layer = model.layers[-1]

    def one(key):
        inputs, _, _ = model.propagate(model.draw_noise(key, 1, X.shape[0]), X)[-1]
        Z, H = layer.place(inputs[0])
        return H, y - layer.mean_function(Z)

    draws = jax.vmap(one)(jax.random.split(key, num_samples))
    return jax.tree.map(lambda part: part.reshape(-1, part.shape[-1]), draws)


def _natural(gram, projected, noise):
    """Lam (P, M, M) and c (P, M)."""
    eye = jnp.eye(gram.shape[-1], dtype=gram.dtype)
    return eye + gram / noise[:, None, None], projected / noise[:, None]


def gaussian_noise(model: DeepGP) -> Float[Array, " P"]:
    """The noise variances of a model that has nothing else."""
    if not isinstance(model.likelihood, Gaussian):
        kind = type(model.likelihood).__name__
        raise TypeError(f"the collapsed output layer needs a Gaussian likelihood, got {kind}.")
    return reference_noise(model)


def reference_noise(model: DeepGP) -> Float[Array, " P"]:
    """The usual noise variance of each output, in the widest precision that is switched on."""
    return model.likelihood.reference.astype(jax.dtypes.canonicalize_dtype(jnp.float64))
