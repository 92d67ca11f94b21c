"""Two layers against brute-force Monte Carlo of the joint model, and what prediction promises."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

from overtone.gp.diagnostics import outside_fraction, residual_fraction
from overtone.gp.features import BandLimited, Fourier, InducingPoints, PinnedFourier
from overtone.gp.kernels import (
    Additive,
    Linear,
    Matern32,
    Matern52,
    Periodic,
    RationalQuadratic,
    SquaredExponential,
)
from overtone.gp.layers import Layer
from overtone.gp.likelihoods import Gaussian
from overtone.gp.maps import Affine, LinearMean, Projection, ZeroMean
from overtone.gp.model import DeepGP, draw, draw_prior, elbo, layer_marginals, predict, quasi_normal
from overtone.gp.variational import Full, Joint, MeanField
from overtone.inference import predictions
from overtone.inference.collapsed import Collapsed
from overtone.inference.objective import Elbo, ImportanceWeighted, KLWeights, PredictiveDensity, Progress, Rows
from overtone.numerics.params import Fixed, Positive, is_wrapper, unwrap
from tests.planned import built
from tests.posteriors import shaken

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
X = RNG.uniform(size=(6, 2))
Y = RNG.normal(size=(6, 1))
pytestmark = pytest.mark.usefixtures("x64")


def random_model(method: str, **settings) -> DeepGP:
    """A two-layer model whose q is far from its start."""
    model = unwrap(built(X, Y, method, n_inducing=5, dtype="float64", **settings))
    rng = np.random.default_rng(1)

    def shake(layer):
        return eqx.tree_at(lambda la: la.q, layer, shaken(layer.q, 0.5, rng))

    return eqx.tree_at(lambda m: m.layers, model, tuple(shake(layer) for layer in model.layers))


def brute_force(model: DeepGP, num: int, seed: int) -> np.ndarray:
    """Joint draws of f(X) through the stack: v ~ q(v), then f | v at all rows from its full Gaussian conditional.

    The inputs of a layer differ from draw to draw, so each has its own dense conditional covariance K - A^T A.
    """
    rng = np.random.default_rng(seed)
    H = np.broadcast_to(X, (num, *X.shape))
    for layer in model.layers:
        Z, H = map(np.asarray, _inputs(layer, jnp.asarray(H)))
        num_outputs = layer.num_outputs
        eps = rng.normal(size=(num, *layer.q.mean.shape))
        root = np.asarray(layer.q.unit) * np.exp(layer.q.log_diag)[:, None]
        v = np.asarray(layer.q.mean) + np.einsum("bmpk,sbpk->sbpm", root, eps)
        A, K = _covariances(layer, jnp.asarray(H))
        conditional = K - np.swapaxes(A, 1, 2) @ A + (float(layer.noise) + 1e-10) * np.eye(len(X))
        noise = np.linalg.cholesky(conditional) @ rng.normal(size=(num, len(X), num_outputs))
        H = (
            np.einsum("smn,spm->snp", A, np.swapaxes(v, 1, 2).reshape(num, num_outputs, -1))
            + noise
            + _means(layer, jnp.asarray(Z))
        )
    return H


@eqx.filter_jit
def _inputs(layer, X):
    return jax.vmap(layer.at)(X)


@eqx.filter_jit
def _covariances(layer, H):
    return jax.vmap(lambda h: (layer.features.whitened(layer.kernel, h), layer.kernel.gram(h, h)))(H)


@eqx.filter_jit
def _means(layer, H):
    return jax.vmap(layer.mean_function)(H)


@pytest.mark.parametrize("method", ["id-dgp", "dgp"])
def test_two_layer_moments_agree_with_brute_force(method):
    model, num = random_model(method), 20_000
    draws = brute_force(model, num, seed=2)[:, :, 0]
    mixture = eqx.filter_jit(layer_marginals)(model, KEY, jnp.asarray(X), num_samples=4096)[-1]
    mean_error = draws.std(axis=0) / np.sqrt(num)
    np.testing.assert_array_less(np.abs(mixture.mean()[:, 0] - draws.mean(axis=0)), 4.5 * mean_error)
    fourth = np.mean((draws - draws.mean(axis=0)) ** 4, axis=0)
    var_error = np.sqrt((fourth - draws.var(axis=0) ** 2) / num)
    np.testing.assert_array_less(np.abs(mixture.var()[:, 0] - draws.var(axis=0)), 4.5 * var_error)


@pytest.mark.parametrize("method", ["id-dgp", "dgp"])
def test_function_draws_have_the_predicted_moments(method):
    model = random_model(method)
    keys = jax.random.split(KEY, (20_000, 2))
    draws = jax.jit(jax.vmap(lambda k: draw(model, k[0], k[1], jnp.asarray(X))[-1][1]))(keys)[:, :, 0]
    mixture = eqx.filter_jit(layer_marginals)(model, KEY, jnp.asarray(X), num_samples=4096)[-1]
    error = np.asarray(draws).std(axis=0) / np.sqrt(len(keys))
    np.testing.assert_array_less(np.abs(mixture.mean()[:, 0] - draws.mean(axis=0)), 4.5 * error)
    np.testing.assert_allclose(draws.std(axis=0), mixture.std()[:, 0], rtol=0.05)


@pytest.mark.parametrize("method", ["id-dgp", "dgp"])
def test_prior_draws_have_the_prior_covariance(method):
    """The first layer's draws are exact: linear mean, covariance K(X, X) for each unit. The second's are finite."""
    model = unwrap(built(X, Y, method, n_inducing=5, dtype="float64"))
    layer = model.layers[0]
    keys = jax.random.split(KEY, 20_000)
    (_, hidden), (_, output) = jax.jit(jax.vmap(lambda k: draw_prior(model, k, jnp.asarray(X))))(keys)
    Z, H = layer.at(jnp.asarray(X))
    np.testing.assert_allclose(np.asarray(hidden).mean(axis=0), layer.mean_function(Z), atol=0.05)
    np.testing.assert_allclose(np.cov(np.asarray(hidden)[:, :, 1].T), layer.kernel.gram(H, H), atol=0.05)
    assert np.abs(np.corrcoef(hidden[:, 0, 0], hidden[:, 0, 1])[0, 1]) < 0.03
    np.testing.assert_allclose(np.asarray(output).var(axis=0), 1.0, atol=0.05)


def test_same_key_draws_the_same_function_whatever_the_rows():
    """The part carried by the inducing variables is one function: only the residual changes with row_key."""
    model = random_model("dgp", n_layers=1)
    many = jnp.concatenate([model.layers[0].features.Z] * 2)  # at the points themselves there is no residual
    rows = model.layers[0].scaling.inverse(many)
    values = eqx.filter_jit(draw)(model, KEY, jax.random.key(1), rows)[-1][1]
    np.testing.assert_allclose(values[:5], values[5:], atol=1e-5)


def test_minibatch_elbo_is_unbiased():
    model = random_model("id-dgp")
    X_, Y_ = jnp.asarray(X), jnp.asarray(Y)
    value = jax.jit(lambda k, x, y: elbo(model, k, x, y, num_data=6, num_samples=2000))
    full = value(KEY, X_, Y_)
    halves = [value(jax.random.key(i), X_[rows], Y_[rows]) for i, rows in enumerate((slice(0, 3), slice(3, 6)))]
    assert float(sum(halves)) / 2 == pytest.approx(float(full), rel=0.02)


def test_prediction_depends_neither_on_batch_nor_on_order():
    model = random_model("id-dgp")
    compute = eqx.filter_jit(lambda x: predict(model, KEY, x, num_samples=16))
    whole, part = compute(jnp.asarray(X)), compute(jnp.asarray(X[[4, 1]]))
    np.testing.assert_allclose(part.means, whole.means[:, [4, 1]], rtol=1e-12)
    np.testing.assert_allclose(part.variances, whole.variances[:, [4, 1]], rtol=1e-12)


def test_every_width_and_depth_runs():
    for widths, layers in ((1, 2), (2, 3), (5, 4)):  # PCA down, identity, padding up
        model = built(X, np.tile(Y, 2), n_inducing=3, hidden_width=widths, n_layers=layers, dtype="float64")
        marginals = eqx.filter_jit(layer_marginals)(model, KEY, jnp.asarray(X), num_samples=4)
        assert [m.mean().shape for m in marginals] == [(6, widths)] * (layers - 1) + [(6, 2)]


def test_start_is_the_paper_s():
    """Inner layers copy their input through the linear mean, almost without noise from q; the outer q is its prior."""
    model = unwrap(built(X, Y, n_inducing=30, preset="paper", dtype="float64"))
    inner, outer = model.layers
    assert float(inner.q.spread(jnp.eye(inner.features.num_features)).max()) == pytest.approx(1e-5)
    assert float(outer.q.spread(jnp.eye(outer.features.num_features)).max()) == pytest.approx(1.0)
    mean, _ = eqx.filter_jit(inner)(jnp.asarray(X))
    np.testing.assert_allclose(mean, inner.scaling(jnp.asarray(X)), atol=1e-12)
    assert float(outer.kl()) == 0.0
    assert isinstance(inner.features.parts, Fourier)
    np.testing.assert_array_equal([inner.features.parts.a, outer.features.parts.b], [[-2, -2], [3, 3]])


def test_outside_fraction_counts_inputs_beyond_the_interval():
    model = unwrap(built(X, Y, n_inducing=3, dtype="float64"))
    first, second = eqx.filter_jit(outside_fraction)(model, KEY, jnp.asarray(X))
    assert float(first) == 0.0
    moved = eqx.tree_at(lambda m: m.layers[1].features.parts.a, model, jnp.full(17, 0.5))
    _, second = eqx.filter_jit(outside_fraction)(moved, KEY, jnp.asarray(X), num_samples=50)
    assert 0.2 < float(second) < 0.8


def test_residual_fraction_falls_with_the_number_of_frequencies():
    shares = []
    for size in (2, 8, 32):
        model = built(X, Y, n_inducing=size, dtype="float64")
        shares.append([float(share) for share in eqx.filter_jit(residual_fraction)(model, KEY, jnp.asarray(X))])
    coarse, middle, fine = np.array(shares)
    assert np.all(fine < middle)
    assert np.all(middle < coarse)
    assert np.all((fine > 0) & (coarse < 1))
    layer = unwrap(model).layers[0]
    _, H = _inputs(layer, jnp.asarray(X)[None])
    A, K = (np.asarray(part)[0] for part in _covariances(layer, H))
    assert fine[0] == pytest.approx(1 - np.mean(np.sum(A**2, axis=0) / np.diag(K)))


@eqx.filter_jit
def losses(objectives, model, key, X, y):
    """Of all objectives at once, for a batch of ten times as many rows."""
    state = Progress(jnp.zeros((), jnp.int32), jnp.asarray(10.0 * len(X)))
    return [objective.loss(model, state, key, Rows(X, y))[0] for objective in objectives]


def test_objectives_of_several_draws_agree_with_their_formulas():
    """In NumPy, from the same draws of the hidden layer; one target is missing, and counts nothing."""
    model, num = random_model("dgp"), 8
    y = np.where(np.arange(6)[:, None] == 2, np.nan, Y)
    objectives = Elbo(num), ImportanceWeighted(num), PredictiveDensity(num)
    found = losses(objectives, model, KEY, jnp.asarray(X), jnp.asarray(y))
    draws = eqx.filter_jit(lambda m: m.propagate(m.draw_noise(KEY, num, 6), jnp.asarray(X))[-1][1:])(model)
    (mean, var), noise = map(np.asarray, draws), np.asarray(model.likelihood.noise)
    known = np.delete(np.arange(6), 2)
    normal = norm(mean, np.sqrt(noise)).logpdf(Y)[:, known]
    expected = normal - 0.5 * var[:, known] / noise
    predictive = norm(mean, np.sqrt(var + noise)).logpdf(Y)[:, known]
    fits = (
        expected.mean(axis=0).sum(),
        (logsumexp(expected, axis=0) - np.log(num)).sum(),
        (logsumexp(predictive, axis=0) - np.log(num)).sum(),
    )
    np.testing.assert_allclose(found, [float(model.kl()) / 60 - fit / 6 for fit in fits], rtol=1e-9)
    assert fits[0] < fits[1] < fits[2]  # Jensen's inequality, twice


def test_the_importance_weighted_bound_weighs_draws_by_all_targets_of_a_row():
    """In NumPy: a draw that explains one of two targets well and the other one badly is not worth both."""
    num, rng = 8, np.random.default_rng(3)
    y, mean, var = rng.normal(size=(6, 2)), rng.normal(size=(num, 6, 2)), rng.uniform(0.1, 1, (num, 6, 2))
    y[2, 1] = np.nan
    noise = np.array([0.1, 0.4])
    given = (jnp.asarray(part) for part in (y, mean, var))
    found = ImportanceWeighted(num).fit(Gaussian(jnp.asarray(noise)), *given)
    expected = np.nan_to_num(norm(mean, np.sqrt(noise)).logpdf(y) - 0.5 * var / noise)
    by_row = logsumexp(expected.sum(axis=2), axis=0) - np.log(num)
    assert float(found.sum()) == pytest.approx(by_row.sum(), rel=1e-9)


def test_the_importance_weighted_bound_is_the_elbo_for_one_draw_and_rises_with_their_number():
    model = random_model("dgp")
    rows = jnp.asarray(X), jnp.asarray(Y)
    whole, one = losses((Elbo(), ImportanceWeighted(1)), model, KEY, *rows)
    assert float(one) == pytest.approx(float(whole), rel=1e-12)
    bound = eqx.filter_jit(elbo)(model, KEY, *rows, num_data=60)
    assert -60 * float(whole) == pytest.approx(float(bound), rel=1e-12)
    objectives = tuple(ImportanceWeighted(num) for num in (1, 4, 16))
    keys = jax.random.split(KEY, 400)
    values = -np.asarray(eqx.filter_vmap(losses, in_axes=(None, None, 0, None, None))(objectives, model, keys, *rows))
    rises = np.diff(values, axis=0)
    assert np.all(rises.mean(axis=1) > 3 * rises.std(axis=1) / 20)


def test_the_divergence_of_hidden_layers_is_annealed_in_every_objective():
    model = random_model("dgp")
    rows, hidden = Rows(jnp.asarray(X), jnp.asarray(Y)), float(model.layers[0].kl())

    @eqx.filter_jit
    def at(model, step):
        state = Progress(step, jnp.asarray(60.0))
        kinds = (Elbo, ImportanceWeighted, PredictiveDensity, Collapsed)
        given = [[kind(2, weights).loss(model, state, KEY, rows) for weights in WEIGHTS] for kind in kinds]
        return jnp.asarray([[loss for loss, _ in each] for each in given]), given[0][0][1].step

    for step, share in ((0, 0.0), (30, 0.3), (100, 1.0), (250, 1.0)):
        found, following = at(model, jnp.asarray(step))
        np.testing.assert_allclose(found[:, 0] - found[:, 1], (1 - share) * hidden / 60, rtol=1e-9, atol=1e-12)
        assert int(following) == step + 1


def test_annealing_takes_at_most_a_share_of_the_planned_steps_and_ends_at_full_weight():
    model = random_model("dgp")
    hidden, weights = float(model.layers[0].kl()), KLWeights(100)
    for step, planned, share in ((20, 50, 0.5), (40, 50, 1.0), (50, 50, 1.0), (50, 1000, 0.5), (0, 50, 0.0)):
        state = Progress(jnp.asarray(step), jnp.asarray(60.0), jnp.asarray(planned))
        assert float(weights.hidden(model, state, jnp.float64)) == pytest.approx(share * hidden, rel=1e-12)


WEIGHTS = KLWeights(), KLWeights(100)


def clusters():
    rng = np.random.default_rng(3)
    return np.concatenate([rng.normal(centre, 0.1, size=(20, 2)) for centre in (0, 3, (0, 5), (9, 9))])


def described(model):
    """The kinds of leaves by their paths: Positive, Fixed or plain arrays, with their shapes and types."""
    pairs, _ = jax.tree_util.tree_flatten_with_path(model, is_leaf=is_wrapper)
    return {jax.tree_util.keystr(path): leaf for path, leaf in pairs}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_a_model_leaves_open_is_filled_in(dtype):
    rows, layers = clusters(), []
    layers.append(Layer(Matern32(3.0), PinnedFourier(3), outputs=4, projection=Projection(5)))
    layers.append(Layer(Matern52(), Fourier(2), q=MeanField))
    kernel = Periodic() * RationalQuadratic(2.0, alpha=0.7) + Linear()
    layers.append(Layer(kernel, InducingPoints(6), q=MeanField))
    model = DeepGP(layers, Gaussian(0.3)).initialised(rows, rows[:, 0], dtype=dtype)
    assert {leaf.dtype for leaf in jax.tree.leaves(model) if eqx.is_array(leaf)} == {np.dtype(dtype)}
    assert all(eqx.is_array(leaf) for leaf in jax.tree.leaves(model))  # no number is left
    first, _, third = model.layers
    assert [layer.num_outputs for layer in model.layers] == [4, 4, 1]
    assert [type(layer.q) for layer in model.layers] == [Full, MeanField, MeanField]
    np.testing.assert_allclose(
        [float(np.exp(layer.q.log_diag).max()) ** 2 for layer in model.layers], [1e-5, 1e-5, 1], rtol=1e-5
    )
    for layer, blocks in zip(model.layers, (5, 4, 1), strict=True):
        assert layer.features.num_blocks == len(layer.q.mean) == blocks
        assert layer.q.mean.shape[1] == layer.num_outputs
        assert blocks * layer.q.mean.shape[2] == layer.features.num_features
        assert isinstance(layer.scaling.shift, Fixed)
    # The kernels: positive parameters, for each dimension of features of single dimensions, whose variances add up.
    parts = unwrap(first.kernel.parts)
    assert isinstance(first.kernel, Additive)
    assert isinstance(first.kernel.parts.variance, Positive)
    np.testing.assert_allclose(parts.variance, np.full(5, 0.6), rtol=1e-6)
    np.testing.assert_allclose(parts.lengthscale, np.full(5, 0.2), rtol=1e-6)
    found = {path.rpartition(".kernel")[2]: leaf for path, leaf in described(third).items() if ".kernel" in path}
    assert all(isinstance(leaf, Positive) for leaf in found.values())
    values = {path: np.asarray(leaf.unwrap()) for path, leaf in found.items()}
    expected = {
        ".parts[0].parts[0].variance": 1.0,
        ".parts[0].parts[0].lengthscale": np.ones(4),
        ".parts[0].parts[0].period": np.ones(4),
        ".parts[0].parts[1].variance": 2.0,
        ".parts[0].parts[1].lengthscale": np.full(4, 0.2),
        ".parts[0].parts[1].alpha": 0.7,
        ".parts[1].variance": 1.0,
    }
    assert values.keys() == expected.keys()
    for path, value in expected.items():
        assert values[path].shape == np.shape(value)
        np.testing.assert_allclose(values[path], value, rtol=1e-6)
    # Directions, means, noise and likelihood.
    assert isinstance(first.projection.weight, jax.Array)
    assert first.projection.weight.shape == (2, 5)
    assert (type(first.mean_function), type(third.mean_function)) == (LinearMean, ZeroMean)
    assert isinstance(first.mean_function.weight, Fixed)
    np.testing.assert_array_equal(first.mean_function.weight.value, np.eye(2, 4))
    assert [type(layer.noise) for layer in model.layers] == [Positive, Positive, Fixed]
    np.testing.assert_allclose([float(unwrap(layer.noise)) for layer in model.layers], [1e-5, 1e-5, 0], rtol=1e-5)
    assert isinstance(model.likelihood.noise, Positive)
    np.testing.assert_allclose(unwrap(model.likelihood).noise, [0.3], rtol=1e-6)
    mixture = eqx.filter_jit(layer_marginals)(model, KEY, jnp.asarray(rows, dtype), num_samples=2)[-1]
    assert np.all(np.isfinite(mixture.mean()))
    assert mixture.means.dtype == dtype


def test_every_layer_sees_inputs_in_the_unit_interval():
    rows = 1e4 + 50 * clusters()
    layers = [Layer(Matern32(), PinnedFourier(3), outputs=outputs) for outputs in (1, 3, None)]
    model = unwrap(DeepGP(layers, Gaussian()).initialised(rows, rows, dtype="float64"))
    H = jnp.asarray(rows)
    for layer, width in zip(model.layers, (1, 3, 2), strict=True):
        Z, _ = layer.at(H)
        np.testing.assert_allclose(Z.min(axis=0)[0], 0, atol=1e-9)
        np.testing.assert_allclose(Z.max(axis=0)[0], 1, atol=1e-9)
        H = layer.mean_function(Z)
        assert H.shape == (80, width)


@pytest.mark.parametrize(
    ("features", "interval", "learned"),
    [
        (Fourier(2), [(-2, 3), (-2, 3)], [False, False]),
        (Fourier(2, -1.0, 2.0), [(-1, 2), (-1, 2)], [False, False]),
        (PinnedFourier(2), [(-0.02, 1.02), (-0.5, 1.5)], [False, True]),
        (PinnedFourier(2, -0.5, 1.0), [(-0.5, 1.0), (-0.5, 1.0)], [False, False]),
        (BandLimited(PinnedFourier(2)), [(-0.02, 1.02), (-0.5, 1.5)], [False, True]),
    ],
)
def test_intervals_are_those_of_the_features_and_learned_where_inputs_move(features, interval, learned):
    layers = [Layer(Matern52(), features), Layer(Matern52(), features)]
    model = DeepGP(layers, Gaussian()).initialised(X, Y, dtype="float64")
    for layer, ends, is_learned in zip(model.layers, interval, learned, strict=True):
        parts = layer.features.parts
        assert type(parts) is type(features)
        parts = getattr(parts, "inner", parts)
        assert layer.features.num_dims == 2
        assert getattr(parts, "order", 2) == 2
        for found, end in zip((parts.a, parts.b), ends, strict=True):
            assert isinstance(found, jax.Array if is_learned else Fixed)
            np.testing.assert_array_equal(unwrap(found), np.full(2, end))
    directions = DeepGP([Layer(Matern52(), PinnedFourier(2), projection=Projection(3))], Gaussian()).initialised(X, Y)
    assert isinstance(directions.output.features.parts.a, jax.Array)  # directions are learned, so inputs move


def test_inducing_points_start_at_the_centres_of_clusters():
    rows = clusters()
    layer = Layer(SquaredExponential(), InducingPoints(4))
    (layer,) = unwrap(DeepGP([layer], Gaussian()).initialised(rows, rows[:, 0], dtype="float64")).layers
    Z, points = np.asarray(layer.at(jnp.asarray(rows))[0]), np.asarray(layer.features.Z)
    nearest = np.argmin(np.sum((Z[:, None] - points) ** 2, axis=2), axis=1)
    for each in np.unique(nearest):
        np.testing.assert_allclose(points[each], Z[nearest == each].mean(axis=0), atol=1e-9)
    again = DeepGP([Layer(SquaredExponential(), InducingPoints(9))], Gaussian())
    first, same, other = (again.initialised(rows, rows[:, 0], seed=seed).output.features.Z for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, same)
    assert not np.array_equal(first, other)


def test_what_is_given_stays():
    fixed, free = Fixed(np.array([0.5, 0.25])), jnp.asarray([0.4, 0.8])
    points, weight = jnp.asarray(X[:3]), Fixed(np.eye(2))
    q = MeanField.start((1, 2, 3), 0.5, np.dtype("float64"))
    layer = Layer(
        Matern32(free, fixed), InducingPoints(points), 2, q, LinearMean(weight), Affine(np.zeros(2), np.full(2, 2.0))
    )
    output = Layer(Matern32(Positive(np.asarray(3.0))), InducingPoints(3), noise=0.01)
    model = DeepGP([layer, output], Gaussian(Positive(np.array([0.7])))).initialised(X, Y, dtype="float64")
    first, last = model.layers
    assert isinstance(first.kernel.lengthscale, Fixed)
    np.testing.assert_array_equal(unwrap(first.kernel).lengthscale, fixed.value)
    np.testing.assert_array_equal(first.kernel.variance, free)
    np.testing.assert_array_equal(first.features.Z, points)
    np.testing.assert_array_equal(first.mean_function.weight.value, np.eye(2))
    np.testing.assert_array_equal(unwrap(first).at(jnp.asarray(X))[0], X / 2)
    np.testing.assert_array_equal(first.q.log_diag, q.log_diag)
    assert float(last.kernel.variance.unwrap()) == pytest.approx(3.0)
    assert isinstance(last.noise, Positive)
    assert float(last.noise.unwrap()) == pytest.approx(0.01)
    assert float(model.likelihood.noise.unwrap()[0]) == pytest.approx(0.7)


def test_a_model_that_is_not_initialised_says_so():
    with pytest.raises(ValueError, match=r"not initialised; call DeepGP\(\.\.\.\)\.initialised\(X, y\) first"):
        Layer(Matern32(), InducingPoints(3)).at(jnp.asarray(X))
    with pytest.raises(ValueError, match="depends on the kernel; initialise the model first"):
        _ = PinnedFourier(3).num_features
    with pytest.raises(TypeError, match="need a one-dimensional Matern12"):
        DeepGP([Layer(SquaredExponential(), Fourier(3))], Gaussian()).initialised(X, Y)


def test_programs_for_users_agree_with_the_model_s_own():
    """Of rows in several chunks, in the model's precision, with an offset."""
    model = random_model("dgp")
    rows = np.tile(X, (50, 1))
    found = predictions.predict(model, rows, key=KEY, num_samples=16, offset=0.25)
    expected = eqx.filter_jit(lambda x: predict(model, KEY, x, num_samples=16, offset=0.25))(jnp.asarray(X))
    np.testing.assert_allclose(found.mean(), np.tile(expected.mean(), (50, 1)), rtol=1e-9)
    np.testing.assert_allclose(found.std(), np.tile(expected.std(), (50, 1)), rtol=1e-9)
    bound = predictions.elbo(model, (X, Y[:, 0]), key=KEY, num_samples=500)
    many = eqx.filter_jit(elbo)(model, KEY, jnp.asarray(X), jnp.asarray(Y), num_data=6, num_samples=2000)
    assert bound == pytest.approx(float(many), rel=0.05)
    functions = predictions.sample_functions(model, 3, key=KEY)
    assert functions(rows).shape == (3, 300, 1)
    np.testing.assert_allclose(functions(rows)[:, :6], functions(X), rtol=1e-9)


@pytest.mark.parametrize(("num", "dim"), [(64, 1), (32, 11), (6, 3)])
def test_quasi_normal_draws_have_exact_moments(num, dim):
    eps = np.asarray(quasi_normal(KEY, num, dim, jnp.float64))
    np.testing.assert_allclose(eps.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(eps.T @ eps / num, np.eye(dim), atol=1e-12)


def test_quasi_normal_draws_are_even():
    eps = np.asarray(quasi_normal(KEY, 256, 3, jnp.float64))
    np.testing.assert_allclose(np.mean(eps**4, axis=0), 3, atol=0.25)
    np.testing.assert_allclose(np.mean(eps < 1, axis=0), norm.cdf(1), atol=0.01)
    assert len(np.unique(np.asarray(quasi_normal(KEY, 64, 1, jnp.float64)))) == 64
    assert quasi_normal(KEY, 5, 0, jnp.float64).shape == (5, 0)
    assert quasi_normal(KEY, 3, 2, jnp.float64).shape == (3, 2)  # too few for the moments
    assert not np.allclose(np.abs(quasi_normal(KEY, 1, 1, jnp.float64)), 1)


def test_a_joint_posterior_has_the_variance_of_a_few_draws():
    model = random_model("id-dgp")
    output = model.output
    q = shaken(Joint.start((output.features.num_blocks, 1, output.q.mean.shape[-1]), 0.3, "float64"), 0.5, RNG)
    joint = eqx.tree_at(lambda m: m.layers[-1].q, model, q)
    eps = quasi_normal(KEY, 32, sum(model.hidden_widths), jnp.float64)

    @eqx.filter_jit
    def marginals(model, num=None):
        return model.propagate([eps[:, None]], jnp.asarray(X), num)[-1]

    inputs, mean, var = marginals(joint)
    few_inputs, few_mean, few_var = marginals(joint, 4)
    np.testing.assert_array_equal(few_inputs, inputs)
    np.testing.assert_allclose(few_mean, mean, rtol=1e-9)
    np.testing.assert_allclose(few_var, np.broadcast_to(np.mean(var[:4], axis=0), var.shape), rtol=1e-9)
    # Blocks that are independent cost little, and every draw has its own variance.
    np.testing.assert_array_equal(*(marginals(model, num)[2] for num in (None, 4)))
