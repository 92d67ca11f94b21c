"""Overtone's deep GP, through its own training loop."""

import jax
from jax.tree_util import Partial

from benchmarks.protocol import case, data, serve
from overtone.build import build
from overtone.config import Config
from overtone.data import Batches
from overtone.fit import fit
from overtone.train import adam, negative_elbo

CHUNK = 20


def main() -> None:
    settings = case()
    X, y = data(settings["inputs"])
    y = y[:, None]
    config = Config(
        n_inducing=settings["frequencies"],
        n_projections=settings["inputs"],  # additive in the inputs, as in the paper
        covariance=settings["covariance"],
        preset=settings.get("preset", "default"),
        batch_size=settings["batch"],
        output="adam",
    )
    state = {"model": build(config, X, y), "first": 0}
    loss = Partial(negative_elbo, num_data=len(X), num_samples=1)

    def run(num: int) -> int:
        batches = Batches(X, y, batch_size=settings["batch"], seed=state["first"])
        state["first"] += 1
        state["model"], _, _ = fit(
            state["model"], loss, batches, key=jax.random.key(0), optim=adam(0.01), steps=num, chunk=CHUNK
        )
        return num + 1  # at last `fit` takes one that is not kept, to see the loss of the parameters

    with jax.enable_x64(True):
        serve(run)


if __name__ == "__main__":
    main()
