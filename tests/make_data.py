"""Make the files of tests/data for the present format: `python -m tests.make_data`. Those of older formats stay."""

import json

import jax
import numpy as np
import optax

import overtone as ot
from overtone.sklearn import DeepGPRegressor
from overtone.storage.files import FORMAT
from tests.test_storage import DATA, KEY

X = np.linspace(0, 1, 40)[:, None]
Y = np.sin(9 * X[:, 0])


def main() -> None:
    DATA.mkdir(exist_ok=True)
    path, x = DATA / "predictions.json", np.linspace(0, 1, 5)[:, None]
    expected = json.loads(path.read_text()) if path.exists() else {}
    layers = [ot.Layer(ot.Matern32(), ot.PinnedFourier(3)), ot.Layer(ot.Matern52(), ot.InducingPoints(4))]
    model = ot.DeepGP(layers, ot.Gaussian()).initialised(X, Y)
    model = ot.fit(model, ot.Collapsed(), (X, Y), optim=optax.adam(0.05), steps=20, key=jax.random.key(1)).model
    ot.save(model, DATA / f"library-{FORMAT}.safetensors")
    distribution = ot.predict(model, x, key=KEY)
    both = np.asarray([distribution.mean()[:, 0], distribution.std()[:, 0]], float)
    expected[f"library-{FORMAT}.safetensors"] = both.tolist()
    estimator = DeepGPRegressor(n_inducing=3, max_steps=20).fit(X, Y)
    estimator.save(DATA / f"estimator-{FORMAT}.safetensors")
    expected[f"estimator-{FORMAT}.safetensors"] = np.asarray(estimator.predict(x, return_std=True)).tolist()
    path.write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
