"""Any model can be saved: files describe their own structure, and old ones stay readable."""

import json
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import overtone as ot
from overtone.sklearn import load as load_estimator
from overtone.storage import files
from overtone.storage.structure import MODULES, _own_classes, described, rebuilt

DATA = Path(__file__).parent / "data"
X = np.linspace(0, 1, 30)[:, None]
Y = np.sin(9 * X)
KEY = jax.random.key(0)


class Cosine(ot.AbstractKernel):
    """A kernel of a user's own, with a static field."""

    variance: object = 1.0
    cycles: int = eqx.field(static=True, default=3)

    def __call__(self, x, y):
        return self.variance * jnp.cos(2 * jnp.pi * self.cycles * jnp.sum(x - y))

    def diag(self, X):
        return jnp.broadcast_to(self.variance, X.shape[:1])


def points(kernel, likelihood=None):
    layer = ot.Layer(kernel, ot.InducingPoints(4))
    return ot.DeepGP([layer], likelihood or ot.Gaussian()).initialised(X, Y)


MODELS = {
    "sum of kernels": lambda: points(ot.Matern52() + ot.Linear() * ot.Periodic()),
    "student": lambda: points(ot.RationalQuadratic(), ot.StudentT()),
    "negative binomial": lambda: ot.DeepGP(
        [ot.Layer(ot.Matern32(), ot.BSplines(8))], ot.NegativeBinomial()
    ).initialised(X, np.hstack([np.round(Y + 1), 0 * Y])),
    "deep, with a sum of layers": lambda: ot.DeepGP(
        [
            ot.SumOfLayers(
                (
                    ot.Layer(ot.Matern32(), ot.PinnedFourier(3), 2, projection=ot.Projection(3)),
                    ot.Layer(ot.Matern12(), ot.Fourier(3), q=ot.MeanField, projection=ot.Columns((0,))),
                )
            ),
            ot.Layer(ot.Matern32(), ot.PinnedFourier(3), q=ot.MeanField),
        ],
        ot.FlexibleNoise(),
    ).initialised(X, Y),
    "band-limited": lambda: ot.DeepGP(
        [ot.Layer(ot.Matern32(), ot.BandLimited(ot.PinnedFourier(3)), q=ot.Joint)], ot.Gaussian()
    ).initialised(X, Y),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_by_hand_comes_back_as_it_was(name, tmp_path):
    model = MODELS[name]()
    ot.save(model, tmp_path / "model.safetensors")
    again = ot.load(tmp_path / "model.safetensors")
    assert jax.tree.structure(again) == jax.tree.structure(model)
    for one, other in zip(jax.tree.leaves(again), jax.tree.leaves(model), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


def test_own_classes_have_to_be_passed(tmp_path):
    path, model = tmp_path / "model.safetensors", points(Cosine(cycles=2))
    ot.save(model, path)
    with pytest.raises(files.FileError, match=r"pass that class: load\(path, classes=\[Cosine\]\)"):
        ot.load(path)
    again = ot.load(path, classes=[Cosine])
    assert again.layers[0].kernel.cycles == 2
    x = jnp.asarray(X, jnp.float32)
    plain = (ot.unwrap(m).layers[0].kernel.gram(x, x) for m in (model, again))
    np.testing.assert_array_equal(*plain)


def test_what_a_file_cannot_hold_is_refused_with_its_place():
    layer = ot.Layer(ot.Matern32(), ot.PinnedFourier(3))
    with pytest.raises(TypeError, match=r"model\.q is a _ModuleMeta, which a file cannot hold"):
        described(layer)


def test_structures_that_make_no_sense_are_refused():
    structure, arrays = described(points(ot.Matern32()))
    for change, match in (
        (lambda s: s["fields"].pop("layers"), "the field layers of DeepGP is not in this file"),
        (lambda s: s["fields"].update(new=1), "DeepGP has no field new"),
        (lambda s: s["fields"].update(layers={"array": "nothing"}), "the structure of this file is damaged"),
        (lambda s: s.update({"class": "os.system"}), "a part of class os.system"),
    ):
        damaged = json.loads(json.dumps(structure))
        change(damaged)
        with pytest.raises(files.FileError, match=match):
            rebuilt(damaged, arrays)


def test_names_of_classes_are_unique():
    """They are all that a file says about a class."""
    from importlib import import_module

    modules = [import_module(f"overtone.gp.{name}") for name in MODULES]
    everything = {c for m in modules for c in vars(m).values() if isinstance(c, type) and issubclass(c, eqx.Module)}
    own = {c for c in everything if c.__module__.startswith("overtone.")}
    assert len({c.__name__ for c in own}) == len(own)
    assert own <= set(_own_classes().values())


def test_old_files_stay_readable():
    """Files of each format since the sixth are read for ever, and predict what they predicted."""
    expected = json.loads((DATA / "predictions.json").read_text())
    for path in sorted(DATA.glob("*.safetensors")):
        x = np.linspace(0, 1, 5)[:, None]
        if path.stem.startswith("estimator"):
            mean, std = load_estimator(path).predict(x, return_std=True)
        else:
            distribution = ot.predict(ot.load(path), x, key=KEY)
            mean, std = distribution.mean()[:, 0], distribution.std()[:, 0]
        np.testing.assert_allclose([mean, std], expected[path.name], rtol=1e-4, atol=1e-5)


def _many(about):
    about["structure"]["fields"]["layers"] = {"tuple": [about["structure"]["fields"]["layers"]] * 3 + [10**9]}


def _deep(about):
    for _ in range(300):
        about["structure"] = {"list": [about["structure"]]}


CRAFTED = {
    "a number beyond all arrays": (_many, None),
    "lists in lists": (_deep, None),
    "no structure": (lambda about: about.pop("structure"), None),
    "no history": (lambda about: about["history"].clear(), None),
    "a setting that there is not": (lambda about: about["config"].update(n_projections=-3), None),
    "a class of another kind": (lambda about: about["structure"].update({"class": "Rows"}), None),
    "weights that are no numbers": (
        None,
        lambda arrays, name: arrays.update({name: np.full_like(arrays[name], np.nan)}),
    ),
    "weights of another shape": (None, lambda arrays, name: arrays.update({name: arrays[name][..., :-1]})),
    "no weights": (None, lambda arrays, name: arrays.pop(name)),
    "a scale of zero": (None, lambda arrays, _: arrays.update({"x_scaling_.scale": 0 * arrays["x_scaling_.scale"]})),
}


@pytest.mark.parametrize("name", CRAFTED)
def test_crafted_files_are_refused_in_one_sentence(name, tmp_path):
    """Files that a stranger wrote, with the digest that belongs to them: nothing in them is believed."""
    change_words, change_arrays = CRAFTED[name]
    arrays, about = files.read(DATA / "estimator-6.safetensors", "estimator")
    if change_words:
        change_words(about)
    if change_arrays:
        change_arrays(arrays, next(key for key in sorted(arrays) if key.endswith("q.mean")))
    path = tmp_path / "model.safetensors"
    files.write(path, "estimator", arrays, about)
    with np.errstate(all="ignore"), pytest.raises(files.FileError) as error:
        load_estimator(path)
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)
