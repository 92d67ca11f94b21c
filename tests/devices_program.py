"""Train and use small models on as many devices as there are, and print what comes out as JSON, for test_devices."""

import json

import jax
import numpy as np
import optax

import overtone as ot

KEY = jax.random.key(0)
rng = np.random.default_rng(0)
X = rng.random((256, 2))
f = np.sin(6 * X[:, 0]) + X[:, 1]
TARGETS = {
    "Gaussian": f + 0.1 * rng.standard_normal(256),
    "Poisson": np.column_stack([rng.poisson(np.exp(f)), np.zeros(256)]),  # counts, and logs of exposures
}
OBJECTIVES = {
    "natural": ot.NaturalGradient(),
    "elbo": ot.Elbo(),
    "collapsed": ot.Collapsed(),
}


def trained(objective: str, likelihood: str, features) -> list[float]:
    """Return the last loss, and means and variances of some rows, of a deep GP after a few steps."""
    y = TARGETS[likelihood].astype(float)
    layers = [ot.Layer(ot.Matern32(), features, outputs=2), ot.Layer(ot.Matern32(), features, q=ot.Joint)]
    model = ot.DeepGP(layers, getattr(ot, likelihood)()).initialised(X, y, dtype="float64")
    batch = None if objective == "collapsed" else 64
    data = X, y
    found = ot.fit(model, OBJECTIVES[objective], data, optim=optax.adam(0.01), steps=6, batch_size=batch, key=KEY)
    distribution = ot.predict(found.model, X[:19], key=KEY, num_samples=8)
    return [float(found.history.loss[-1]), *np.asarray(distribution.mean()).ravel().tolist()]


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    cases = [("natural", "Poisson", ot.PinnedFourier(3)), ("collapsed", "Gaussian", ot.PinnedFourier(3))]
    cases += [("elbo", "Gaussian", ot.InducingPoints(6))]
    results = {f"{objective}, {kind}": trained(objective, kind, features) for objective, kind, features in cases}
    print(json.dumps({"devices": jax.device_count(), **results}))
