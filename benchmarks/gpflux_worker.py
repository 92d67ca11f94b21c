"""Train GPflux's deep GP, from its own architecture: whitened, k-means points, double precision, its default."""

import os

os.environ.update(TF_USE_LEGACY_KERAS="1", TF_CPP_MIN_LOG_LEVEL="3")

import numpy as np
import tensorflow as tf
from gpflux.architectures import Config, build_constant_input_dim_deep_gp

from benchmarks.protocol import case, data, serve


def main() -> None:
    """Build the model of a case, and serve."""
    settings = case()
    tf.keras.utils.set_random_seed(0)
    tf.keras.backend.set_floatx("float64")
    X, y = data(settings["inputs"])
    X, y = X.astype(float), y.astype(float)[:, None]
    config = Config(
        num_inducing=settings["points"], inner_layer_qsqrt_factor=1e-5, likelihood_noise_variance=1e-2, whiten=True
    )
    model = build_constant_input_dim_deep_gp(X, num_layers=2, config=config).as_training_model()
    model.compile(tf.optimizers.Adam(0.01))
    rng = np.random.default_rng(0)

    def run(num: int) -> None:
        for _ in range(num):
            rows = rng.integers(len(X), size=settings["batch"])
            model.train_on_batch({"inputs": X[rows], "targets": y[rows]})

    serve(run)


if __name__ == "__main__":
    main()
