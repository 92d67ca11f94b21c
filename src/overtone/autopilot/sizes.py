"""How wide the layers of a fit are, and how many variables they have."""

from dataclasses import dataclass

from overtone.autopilot.config import Config
from overtone.autopilot.names import KERNELS, part
from overtone.autopilot.policies import FREQUENCIES, WIDTH


@dataclass(frozen=True)
class Sizes:
    """The sizes of layers that a config asks for, or leaves to the number of inputs and the kind of features."""

    config: Config
    num_inputs: int
    features: str

    def hidden_width(self) -> int:
        """Return as many units as can have full covariances, within limits, where directions are learned."""
        if self.config.hidden_width is not None:
            return self.config.hidden_width
        if self.config.preset == "paper":
            return self.num_inputs
        if self.features != "pinned" or self.num_inputs == 1:
            return min(self.num_inputs, WIDTH.min_units)
        full = min(WIDTH.max_blocks // self.num_directions(self.num_inputs), WIDTH.max_units)
        return min(WIDTH.units_per_input * self.num_inputs, max(WIDTH.min_units, full))

    def num_directions(self, num_inputs: int) -> int:
        """Return along how many directions the functions of a layer with so many inputs vary."""
        if self.features != "points" and self.config.n_projections is not None:
            return self.config.n_projections
        if self.features in ("points", "fourier") or num_inputs == 1:
            return num_inputs
        return min(2 * num_inputs + 1, WIDTH.max_directions)

    def num_features(self, num_inputs: int, num_inducing: int, kernel: str) -> int:
        """Return the number of features of a layer with so many inputs."""
        if self.features == "points":
            return num_inducing
        ends = 2 * (part(KERNELS, kernel).order + 1) if self.features == "pinned" else 0
        of_direction = num_inducing if self.features == "bsplines" else 2 * num_inducing + 1 + ends
        return of_direction * self.num_directions(num_inputs)

    def affordable_frequencies(self, most_layers: int) -> int:
        """Return the most frequencies for each input of a layer of a table."""
        widest = max(self.num_inputs, self.hidden_width()) if most_layers > 1 else self.num_inputs
        return (FREQUENCIES.max_features // self.num_directions(widest) - 5) // 2
