"""Train Overtone's deep GP, through its own training loop, as the driver of steps.py asks."""

import jax

from benchmarks.protocol import case, data, serve
from overtone import Callback, Elbo, fit
from overtone.autopilot.build import build
from overtone.autopilot.config import Config
from overtone.autopilot.plan import plan
from overtone.inference.schedules import planned_adam

CHUNK_STEPS = 20  # which the driver's numbers of steps are multiples of


class ShortTurns(Callback):
    """Makes turns of the same few steps in every fit, so that all run the same compiled loop."""

    def start(self, training):
        training.chunk = training.turn_steps = min(CHUNK_STEPS, training.steps)


def main() -> None:
    """Build the model of a case, and serve."""
    settings = case()
    X, y = data(settings["inputs"])
    y = y[:, None]
    config = Config(
        n_layers=2,
        n_inducing=settings["frequencies"],
        n_projections=settings["inputs"],  # additive in the inputs, as in the paper
        hidden_width=settings["inputs"],
        fine_inputs=(),
        covariance=settings["covariance"],
        preset=settings.get("preset", "default"),
        batch_size=settings["batch"],
        output="adam",
    )
    state = {"model": build(plan(config, X, y), X, y), "runs": 0}
    objective, optim = Elbo(), planned_adam(0.01)

    def run(num: int) -> int:
        key, state["runs"] = jax.random.key(state["runs"]), state["runs"] + 1
        fitted = fit(
            state["model"],
            objective,
            (X, y),
            key=key,
            optim=optim,
            steps=num,
            batch_size=settings["batch"],
            callbacks=[ShortTurns()],
        )
        state["model"] = fitted.model
        return num + 1  # at last `fit` takes one that is not kept, to see the loss of the parameters

    serve(run)


if __name__ == "__main__":
    main()
