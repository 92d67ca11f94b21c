"""Is the model large enough, and in the right place? A few numbers for each layer."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from scipy.stats import t as student_t

from overtone.layers import GPLayer
from overtone.model import DeepGP
from overtone.params import unwrap


def outside_fraction(
    model: DeepGP, key: PRNGKeyArray, X: Float[Array, "N D"], *, num_samples: int = 1
) -> list[Float[Array, ""]]:
    """The share of each layer's inputs that fall outside the interval of its features.

    Covariances are exact out there, but the features say less about it: much above a few percent in a
    hidden layer asks for a wider interval.
    """
    layers = _with_inputs(model, key, X, num_samples)
    return [jnp.mean(layer.features.outside(H)) for layer, H in layers]


def residual_fraction(
    model: DeepGP, key: PRNGKeyArray, X: Float[Array, "N D"], *, num_samples: int = 1
) -> list[Float[Array, ""]]:
    """mean (k - |A|^2) / k at each layer's inputs: the share of the prior that the features cannot represent.

    Near 0 the features are enough for the kernel's lengthscale; above a few percent, more of them would help.
    """
    return [
        jnp.mean(1 - jnp.sum(layer.features.whitened(layer.kernel, H) ** 2, axis=0) / layer.kernel.diag(H))
        for layer, H in _with_inputs(model, key, X, num_samples)
    ]


def share_beyond(layer: GPLayer) -> float:
    """Of a layer's prior variance, the share in waves beyond the last of its pinned features.

    That is about the residual that many of them leave; few, with the states at both ends, leave less. It depends on the
    lengthscales alone: in w l, the spectral density of a Matern is Student's t density with 2 nu degrees of freedom.
    """
    plain: Any = unwrap(layer)
    kernel, features = plain.kernel.parts, plain.features.parts
    highest = 2 * np.pi * features.num_frequencies / np.asarray(features.width)
    beyond = 2 * student_t.sf(highest * np.asarray(kernel.lengthscale), 2 * features.order + 1)
    return float(np.average(beyond, weights=np.asarray(kernel.variance)))


def _with_inputs(model: DeepGP, key, X, num_samples: int) -> list[tuple[GPLayer, Array]]:
    """Each layer with its scaled inputs, drawn through the layers below."""
    model = unwrap(model)
    passes = model.propagate(model.draw_noise(key, num_samples, X.shape[0]), X)
    return [
        (layer, layer.place(H.reshape(-1, H.shape[-1]))[1])
        for layer, (H, _, _) in zip(model.layers, passes, strict=True)
    ]
