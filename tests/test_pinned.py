"""Pinned Fourier features against the Karhunen-Loeve optimum, and their limits."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from overtone.gp.features import PinnedFourier
from overtone.gp.features.base import AbstractInducingFeatures
from overtone.gp.kernels import Matern12, Matern32, Matern52
from tests.reference.karhunen_loeve import optimal_residual
from tests.reference.matern import Matern

MATERNS = [Matern12, Matern32, Matern52]
VARIANCE = 1.3
pytestmark = pytest.mark.usefixtures("x64")


@eqx.filter_jit
def residual(features, kernel, x):
    return kernel.variance - jnp.sum(features.Kuf(kernel, x[:, None]) ** 2, axis=0)


def setting(kind, lengthscale, num_frequencies, dtype=jnp.float64):
    ends = jnp.asarray(0.0, dtype), jnp.asarray(1.0, dtype)
    kernel = kind(jnp.asarray(VARIANCE, dtype), jnp.asarray(lengthscale, dtype))
    return PinnedFourier(num_frequencies, *ends, kind.order), kernel


@pytest.mark.parametrize("lengthscale", [0.05, 0.2, 0.5])
@pytest.mark.parametrize(("kind", "limit"), [(Matern12, 1.1), (Matern32, 1.25), (Matern52, 1.6)])
def test_residual_is_near_the_karhunen_loeve_optimum(kind, limit, lengthscale):
    features, kernel = setting(kind, lengthscale, 20)
    mean = float(residual(features, kernel, jnp.linspace(0, 1, 4001)).mean())
    best = optimal_residual(Matern(kind.order, VARIANCE, lengthscale), 0, 1, features.num_features)
    assert 0.99 < mean / best < limit


@pytest.mark.parametrize("kind", MATERNS)
def test_residual_vanishes_everywhere_as_frequencies_are_added(kind):
    """At the rate of the optimum, M^-(2p+1), also at the ends."""
    x = jnp.linspace(0, 1, 501)
    worst = [float(residual(*setting(kind, 0.2, M), x).max()) for M in (10, 40, 160)]
    rate = 4 ** -(2 * kind.order + 1)
    assert worst[1] < 1.7 * rate * worst[0] + 1e-12
    assert worst[2] < 1.7 * rate * worst[1] + 1e-12
    assert min(float(residual(*setting(kind, 0.2, M), x).min()) for M in (10, 40, 160)) > -1e-12


@pytest.mark.parametrize("kind", MATERNS)
@pytest.mark.parametrize("num_frequencies", [3, 50, 500])
def test_single_precision_keeps_the_covariances(kind, num_frequencies):
    """Q(x, y) = g(x) . g(y) in float32 against float64, inside, at and beyond the ends."""
    x = np.concatenate([np.linspace(-0.3, 1.3, 41), [0.0, 1.0, 1e-6, 1 - 1e-6]])[:, None]
    exact = eqx.filter_jit(PinnedFourier.Kuf)(*setting(kind, 0.1, num_frequencies), jnp.asarray(x))
    single = eqx.filter_jit(PinnedFourier.Kuf)(
        *setting(kind, 0.1, num_frequencies, jnp.float32), jnp.asarray(x, jnp.float32)
    )
    assert single.dtype == jnp.float32
    np.testing.assert_allclose(single.T @ single, exact.T @ exact, atol=3e-4)


@pytest.mark.parametrize("kind", MATERNS)
def test_features_are_continuous_across_the_ends(kind):
    features, kernel = setting(kind, 0.3, 6)
    for end in (0.0, 1.0):
        x = jnp.asarray([end - 1e-9, end, end + 1e-9])
        g = eqx.filter_jit(features.Kuf)(kernel, x[:, None])
        np.testing.assert_allclose(g[:, 0], g[:, 1], atol=1e-6)
        np.testing.assert_allclose(g[:, 2], g[:, 1], atol=1e-6)


def test_the_interval_has_a_gradient():
    _, kernel = setting(Matern32, 0.2, 8)
    x = jnp.linspace(0.1, 0.9, 50)

    def total(a, b):
        return jnp.sum(residual(PinnedFourier(8, a, b, 1), kernel, x))

    gradient = jax.grad(total, argnums=(0, 1))(jnp.asarray(-0.5), jnp.asarray(1.5))
    step = 1e-5
    difference = [
        (total(jnp.asarray(-0.5 + step), jnp.asarray(1.5)) - total(jnp.asarray(-0.5 - step), jnp.asarray(1.5))),
        (total(jnp.asarray(-0.5), jnp.asarray(1.5 + step)) - total(jnp.asarray(-0.5), jnp.asarray(1.5 - step))),
    ]
    np.testing.assert_allclose(gradient, np.array(difference) / (2 * step), rtol=1e-4)
    assert gradient[0] < 0 < gradient[1]  # a tighter interval explains more


def test_ends_that_met_in_training_leave_a_short_interval():
    _, kernel = setting(Matern32, 0.2, 8)
    x = jnp.linspace(0.1, 0.9, 50)[:, None]

    def features(b, x=x):
        return PinnedFourier(8, jnp.asarray(0.5), jnp.asarray(b), 1).Kuf(kernel, x)

    for b in (0.5, 0.4):
        np.testing.assert_array_equal(features(b), features(0.51))
        assert np.all(np.isfinite(jax.jacobian(features)(b)))
        assert np.all(np.isfinite(jax.grad(lambda x, b=b: jnp.sum(features(b, x)))(x)))
    assert np.any(features(0.52) != features(0.51))


@pytest.mark.parametrize("kind", MATERNS)
def test_normal_equations_agree_with_the_features_themselves(kind, monkeypatch):
    """Values, and gradients by kernel, interval, inputs, targets and weights, with rows inside and beyond both ends."""
    monkeypatch.setattr("overtone.gp.features.pinned.WORTH_COMPILING", 0)
    rng = np.random.default_rng(0)
    x, Y = jnp.asarray(rng.uniform(-0.3, 1.3, size=(200, 1))), jnp.asarray(rng.normal(size=(200, 2)))
    features, kernel = setting(kind, 0.2, 6)
    factors, weights = jnp.asarray(rng.normal(size=(features.num_features,) * 2)), jnp.asarray(rng.uniform(size=200))

    def both(method):
        def value(features, kernel, x, Y, weights):
            gram, projected, left = found = method(features, kernel, x, Y, weights)
            return jnp.sum(jnp.sin(gram) * factors) + jnp.sum(jnp.cos(projected)) + jnp.sin(left), found

        grad = eqx.filter_value_and_grad(lambda args: value(*args), has_aux=True)
        return jax.tree.leaves(eqx.filter_jit(grad)((features, kernel, x, Y, weights)))

    ours = both(PinnedFourier.normal_equations)
    generic = both(AbstractInducingFeatures.normal_equations)
    for a, b in zip(ours, generic, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9 * float(jnp.max(jnp.abs(b))))


@pytest.mark.parametrize("worth_compiling", [0, 10**12])
@pytest.mark.parametrize(("lengthscale", "num_frequencies"), [(0.125, 100), (3.0, 60)])
@pytest.mark.parametrize("kind", MATERNS)
def test_normal_equations_of_a_model_in_single_precision(
    kind, lengthscale, num_frequencies, worth_compiling, monkeypatch
):
    """Computed in double precision, but of the features that the model has, whose v3 depends on its precision.

    With a long lengthscale and many frequencies next to nothing is left of s(b), and its features are tiny differences.
    """
    rng = np.random.default_rng(0)
    x, Y = (jnp.asarray(rng.uniform(size=(500, 1)), jnp.float32) for _ in range(2))
    features, kernel = setting(kind, lengthscale, num_frequencies, jnp.float32)
    monkeypatch.setattr("overtone.gp.features.pinned.WORTH_COMPILING", worth_compiling)  # by sums of waves, or not
    compute = eqx.filter_jit(lambda *given: features.normal_equations(*given))
    gram, projected, left = compute(kernel, x, Y, jnp.ones(500))
    wide, kernel, x, Y = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), (features, kernel, x, Y))
    A = eqx.filter_jit(wide.features)(kernel, x[:, 0], jnp.float32)
    np.testing.assert_allclose(gram, A @ A.T, atol=1e-11 * len(x))
    np.testing.assert_allclose(projected, A @ Y, atol=1e-11 * len(x))
    np.testing.assert_allclose(left, len(x) * kernel.variance - jnp.sum(A**2), atol=1e-10 * len(x))


def test_a_kernel_of_another_order_is_refused():
    features, _ = setting(Matern32, 0.2, 4)
    _, kernel = setting(Matern52, 0.2, 4)
    with pytest.raises(ValueError, match="pin 1 derivatives, but Matern52 has 2; make them with order=2"):
        features.Kuf(kernel, jnp.zeros((3, 1)))
