"""Is the model large enough, and in the right place? A few numbers for each layer."""

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from overtone.gp.layers import Layer
from overtone.gp.model import DeepGP
from overtone.numerics.params import unwrap


def outside_fraction(model: DeepGP, key: PRNGKeyArray, X: Float[Array, "N D"], num_samples: int = 1) -> list[Array]:
    """Return the share of each layer's inputs that fall outside the interval of its features.

    Covariances are exact out there, but the features say less about it: much above a few percent in a
    hidden layer asks for a wider interval.
    """
    layers = _with_inputs(model, key, X, num_samples)
    return [jnp.mean(layer.features.outside(H)) for layer, H in layers]


def residual_fraction(model: DeepGP, key: PRNGKeyArray, X: Float[Array, "N D"], num_samples: int = 1) -> list[Array]:
    """Return the mean of (k - |A|^2) / k at each layer's inputs: what the features cannot represent.

    Near 0 the features are enough for the kernel's lengthscale; above a few percent, more of them would help.
    """

    def fraction(layer, H):
        A = layer.features.whitened(layer.kernel, H)
        return jnp.mean(1 - jnp.sum(A**2, axis=0) / layer.features.prior_variance(layer.kernel, H))

    return [fraction(*pair) for pair in _with_inputs(model, key, X, num_samples)]


def _with_inputs(model: DeepGP, key, X, num_samples: int) -> list[tuple[Layer, Array]]:
    """Return each layer, or the first one of a sum, with its scaled inputs, drawn through the layers below."""
    model = unwrap(model)
    passes = model.propagate(model.draw_noise(key, num_samples, X.shape[0]), X)
    return [
        (layer.main, layer.main.at(H.reshape(-1, H.shape[-1]))[1])
        for layer, (H, _, _) in zip(model.layers, passes, strict=True)
    ]
