"""Train GPflux's deep GP, from its own architecture: 2 layers, 128 k-means points, whitened, double precision."""

import os

os.environ.update(TF_USE_LEGACY_KERAS="1", TF_CPP_MIN_LOG_LEVEL="3")

import numpy as np
import tensorflow as tf
from gpflux.architectures import Config, build_constant_input_dim_deep_gp

from benchmarks.curve import BATCH, DRAWS, POINTS, RATE, case, follow, follow_to_the_end, mixture_metrics


def main() -> None:
    """Build the model of a case, and train it by the clock."""
    settings, arrays = case()
    tf.keras.utils.set_random_seed(settings["seed"])
    tf.keras.backend.set_floatx("float64")
    X, y, X_test = arrays["X"].astype(float), arrays["y"].astype(float)[:, None], arrays["X_test"].astype(float)
    config = Config(num_inducing=POINTS, inner_layer_qsqrt_factor=1e-5, likelihood_noise_variance=1e-2, whiten=True)
    deep = build_constant_input_dim_deep_gp(X, num_layers=2, config=config)
    model = deep.as_training_model()
    model.compile(tf.optimizers.Adam(RATE))
    rng, draw = np.random.default_rng(settings["seed"]), tf.function(deep.predict_f)

    def step() -> float:
        rows = rng.integers(len(X), size=min(BATCH, len(X)))
        return -float(np.ravel(model.train_on_batch({"inputs": X[rows], "targets": y[rows]}))[0])

    def evaluate() -> dict:
        noise = float(deep.likelihood_layer.likelihood.variance.numpy())
        chunks = np.array_split(X_test, 1 + len(X_test) // (4 * BATCH))
        drawn = [[draw(chunk) for chunk in chunks] for _ in range(DRAWS)]
        means = np.stack([np.concatenate([m.numpy()[:, 0] for m, _ in parts]) for parts in drawn])
        variances = np.stack([np.concatenate([v.numpy()[:, 0] for _, v in parts]) for parts in drawn])
        return mixture_metrics(arrays["y_test"], np.full(DRAWS, -np.log(DRAWS)), means, variances + noise)

    if settings["method"].endswith("-converged"):
        follow_to_the_end(settings["seconds"][-1], step, evaluate)
    else:
        follow(settings["seconds"], step, evaluate)


if __name__ == "__main__":
    main()
