"""The record of what was decided for a fit."""

from dataclasses import dataclass, field, replace
from typing import Any

from overtone.autopilot.spectrum import Start


@dataclass(frozen=True)
class Plan:
    """A fit in every detail. `depths` are tried one after the other, and the better model is kept."""

    method: str
    depths: tuple[int, ...]
    features: str
    num_inducing: int  # frequencies, splines or points
    interval: tuple[float, float] | None  # None leaves it to the features
    kernel: str
    lengthscale: float  # of hidden layers, and of the output layer unless the spectrum says more
    start: Start | None  # of the output layer of a series
    hidden_width: int
    directions: tuple[int, int]  # of the first layer, and of further ones
    covariance: str
    fine_inputs: tuple[int, ...]
    band_limited: bool
    likelihood: str
    noise: float  # variance to start from
    output: str
    kl_anneal_steps: int
    kl_addends: float
    num_samples: int
    learning_rate: float
    batch_size: int
    steps: int
    seconds: float | None
    held_out: int  # rows
    held_out_last: bool  # whether these are the last ones, not random ones
    calibrated: bool  # whether the noise between layers is raised after training
    dtype: str
    seed: int
    exact_kernel: str | None = None  # of the exact GP that a small table starts with, if it does
    varying_noise: bool = False  # whether rows that are left out decide if the noise of one layer varies
    optimiser: str = "adam"  # with a warm-up and a decay; "plain adam" has one rate; "l-bfgs" takes all rows at once
    neighbours: bool = False  # whether held-out rows decide if the neighbours of a row are asked
    reasons: dict[str, str] = field(default_factory=dict)

    @property
    def num_layers(self) -> int:
        """The number of layers of the deepest model."""
        return self.depths[-1]

    @property
    def decisions(self) -> dict[str, Any]:
        """What was decided, by name, without the reasons."""
        about = {name: value for name, value in vars(self).items() if name != "reasons"}
        return {**about, "max_steps": self.steps}

    @staticmethod
    def from_json(about: dict[str, Any]) -> "Plan":
        """Return the plan that `dataclasses.asdict` took apart, with tuples for lists."""
        return Plan(**{**about, "start": about["start"] and Start(*about["start"])})

    def is_exact(self, model: Any) -> bool:
        """Return whether a model that was trained by this plan is an exact GP."""
        return self.exact_kernel is not None and len(model.layers) == 1

    def shallow(self) -> "Plan":
        """Return the same plan for one layer."""
        return replace(self, depths=(1,))
