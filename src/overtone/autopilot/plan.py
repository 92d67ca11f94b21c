"""What was decided, and why: after `plan(config, X, y)` nothing is left open.

Every decision is made here, once. Its thresholds are in `policies`, and `Plan.reasons` explains it in a sentence.
"""

from itertools import product
from math import ceil
from typing import Any

import numpy as np

from overtone.autopilot.config import DEEP, FOURIER, STRUCTURE, Config
from overtone.autopilot.fine import fine_inputs
from overtone.autopilot.local import may_have_neighbours
from overtone.autopilot.names import KERNELS, LIKELIHOODS, part
from overtone.autopilot.paper import paper_optimiser, paper_output
from overtone.autopilot.policies import (
    BAND_LIMIT,
    DEPTH,
    EXACT,
    FINE,
    FREQUENCIES,
    HOLD_OUT,
    OBJECTIVE,
    START,
    TIME,
    WIDTH,
)
from overtone.autopilot.record import Plan
from overtone.autopilot.sizes import Sizes
from overtone.autopilot.spectrum import Start, frequencies, start_noise, start_of_series, warn_if_far_too_few
from overtone.inference.batches import random_rows
from overtone.inference.objective import Rows


def plan(config: Config, X: Any, y: Any) -> Plan:
    """Decide all that a config leaves to the data: inputs X (N, D), and targets y (N, Q), standardised if numbers.

    Of very many rows, or of a view of rows, a random part is looked at.
    """
    return _Planner(config, len(X), *random_rows(Rows(X, y), START.max_rows)).plan()


class _Planner:
    """The decisions, each of which may depend on those before it."""

    def __init__(self, config: Config, num_rows: int, X: np.ndarray, y: np.ndarray):
        self.config, self.X = config, X
        self.num_rows, self.num_inputs = num_rows, X.shape[1]
        self.series, self.paper = self.num_inputs == 1, config.preset == "paper"
        self.reasons: dict[str, str] = {}
        self.features = self.decide_features()
        self.sizes = Sizes(config, self.num_inputs, self.features)
        self.points, self.pinned = self.features == "points", self.features == "pinned"
        self.kernel = config.kernel if config.kernel != "auto" else "rbf" if self.points else "matern32"
        self.assumed_likelihood = "gaussian" if config.likelihood == "auto" else config.likelihood
        self.targets = part(LIKELIHOODS, self.assumed_likelihood).rough_functions(y)
        self.complete = self.assumed_likelihood == "gaussian" and not np.isnan(y).any()

    def plan(self) -> Plan:
        config = self.config
        most_layers = config.n_layers if isinstance(config.n_layers, int) else 2 if config.method in DEEP else 1
        self.decide_inducing(most_layers)
        exact = self.decide_exact()
        depths = self.decide_depths(most_layers, exact is not None)
        width = self.sizes.hidden_width() if depths[-1] > 1 else 1
        if width > 1 and config.hidden_width is None:
            why = "as in the paper" if self.paper else "wider layers would be slower"
            self.reasons["hidden_width"] = f"{width} units for {self.num_inputs} inputs: {why}."
        directions = self.sizes.num_directions(self.num_inputs), self.sizes.num_directions(width)
        band_limited = self.decide_band_limit(depths)
        start = self.start(self.kernel, self.num_inducing, band_limited)
        held_out = self.decide_held_out(depths)
        output, likelihood = self.decide_output(depths, width, band_limited, held_out)
        return Plan(
            method=config.method,
            depths=depths,
            exact_kernel=exact,
            features=self.features,
            num_inducing=self.num_inducing,
            interval=config.interval,
            kernel=self.kernel,
            lengthscale=min(START.lengthscale, START.waves / self.num_inducing) if self.pinned else START.lengthscale,
            start=start,
            hidden_width=width,
            directions=directions,
            covariance=self.decide_covariance(directions[0]),
            fine_inputs=self.decide_fine_inputs(depths),
            band_limited=band_limited,
            likelihood=likelihood,
            noise=self.start_noise(start) if self.series and not self.paper else START.noise,
            output=output,
            optimiser=paper_optimiser(config, output),
            kl_anneal_steps=OBJECTIVE.anneal_steps if output == "natural" else 0,
            kl_addends=FINE.kl_weight if output == "natural" else 1.0,
            num_samples=config.n_samples or (OBJECTIVE.collapsed_draws if output == "collapsed" else 1),
            learning_rate=config.learning_rate
            or (OBJECTIVE.learning_rate_points if self.points or self.paper else OBJECTIVE.learning_rate),
            batch_size=config.batch_size,
            steps=config.max_steps or (TIME.unlimited if config.max_time else TIME.steps),
            seconds=config.max_time,
            held_out=held_out,
            held_out_last=config.held_out == "last",
            calibrated=output == "collapsed" and not self.paper,
            varying_noise=config.likelihood == "auto"
            and (exact is not None or (self.series and self.pinned and output == "collapsed")),
            neighbours=may_have_neighbours(config, output, likelihood, held_out),
            dtype=config.dtype,
            seed=config.random_state,
            reasons=self.reasons,
        )

    def decide_features(self) -> str:
        if self.config.features != "auto":
            return self.config.features
        if self.config.method not in FOURIER:
            return "points"
        return "fourier" if self.paper else "pinned"

    def decide_inducing(self, most_layers: int) -> None:
        """Decide the number of inducing variables and, for a series, the kernel."""
        asked = self.config.n_inducing
        if self.paper and asked == "auto":
            self.num_inducing, self.reasons["n_inducing"] = FREQUENCIES.paper, "The paper has 50 frequencies or points."
        elif self.points and asked == "auto":
            self.num_inducing = min(FREQUENCIES.points, self.num_rows)
            self.reasons["n_inducing"] = f"{self.num_inducing} points are usual, and no more than there are rows."
        elif asked == "auto":
            wanted = self.wanted_frequencies()
            most = FREQUENCIES.max_features if self.series else self.sizes.affordable_frequencies(most_layers)
            self.num_inducing = max(FREQUENCIES.min_frequencies, min(wanted, most))
            if self.features == "bsplines":  # two for each wave, and some beyond the ends
                self.num_inducing = 2 * self.num_inducing + FREQUENCIES.min_frequencies
            self.grow_series()
            self.reasons["n_inducing"] = (
                f"The target's spectrum asks for {wanted} frequencies; {self.num_inducing} are used."
            )
        else:
            self.num_inducing = int(asked)
            if self.series and not self.points:
                warn_if_far_too_few(self.num_inducing, self.wanted_frequencies())

    def wanted_frequencies(self) -> int:
        """Return the frequencies that the target's spectrum asks for, on the interval that carries them."""
        return ceil(self.interval_length * frequencies(self.X, self.targets))

    @property
    def interval_length(self) -> float:
        """The length of the features' interval, in ranges of the data."""
        a, b = self.config.interval or ((-2.0, 3.0) if self.features == "fourier" else (0.0, 1.0))
        return b - a

    def start_noise(self, start: Start | None) -> float:
        """Return the noise variance that a series starts from; two points or splines carry a cycle."""
        waves = self.features in ("pinned", "fourier")
        cycles = self.num_inducing / (self.interval_length if waves else 2)
        return start_noise(self.X[:, 0], self.targets, start, cycles)

    def grow_series(self) -> None:
        """Take more frequencies, and a smoother kernel, where the bound of a series says that they are worth it."""
        best, num, free = -np.inf, self.num_inducing, self.config.kernel == "auto"
        most = max(num, min(FREQUENCIES.max_features, self.num_rows // 3))
        for growth, kernel in product(
            FREQUENCIES.series_growths, FREQUENCIES.series_kernels if free else (self.kernel,)
        ):
            tried = min(most, round(growth * num))
            if (start := self.start(kernel, tried)) and start.bound > best + FREQUENCIES.worth_nats:
                best, self.num_inducing, self.kernel = start.bound, tried, kernel
        if best > -np.inf and free:
            self.reasons["kernel"] = f"{self.kernel} explains the spectrum of the series best."

    def decide_exact(self) -> str | None:
        """Decide whether a small table or series starts with an exact GP, and with which kernel."""
        asked = any(getattr(self.config, name) != getattr(Config, name) for name in STRUCTURE)
        coarse = self.num_rows > EXACT.fitted_rows < EXACT.points_per_wave * self.num_inducing
        small = self.pinned and self.complete and not asked and self.num_rows <= EXACT.max_rows
        if not small or (self.series and (coarse or self.is_band_limited())):
            return None
        return EXACT.kernel if self.config.kernel == "auto" else self.config.kernel

    def decide_depths(self, most_layers: int, exact: bool) -> tuple[int, ...]:
        if exact and not self.series:
            few = self.num_rows < (EXACT.min_rows_depth if self.config.max_time else EXACT.min_rows_depth_unasked)
            self.reasons["n_layers"] = (
                f"{self.num_rows} rows rarely prove that one layer, an exact GP, is not enough; with max_time, two "
                f"layers are tried from {EXACT.min_rows_depth} rows on."
                if few
                else "An exact GP of one layer comes first, and two layers have to prove that they are better."
            )
            return (1,) if few else (1, 2)
        if self.config.n_layers != "auto" or self.config.method != "id-dgp" or not self.pinned:
            return (most_layers,)
        if not self.series:
            self.reasons["n_layers"] = "One layer shows interactions of several inputs only in part, so there are two."
            return (2,)
        if self.num_inducing > DEPTH.max_frequencies:
            long = self.num_rows * self.num_inducing > DEPTH.max_products
            if long or self.is_band_limited():
                self.reasons["n_layers"] = f"{self.num_inducing} frequencies need all the time, so there is one layer."
                return (1,)
        if (num := len(np.unique(self.X))) < DEPTH.min_values:
            self.reasons["n_layers"] = f"The input has {num} distinct values, too few to need more than one layer."
            return (1,)
        self.reasons["n_layers"] = "One layer is trained, then two, and the model that predicts better is kept."
        return (1, 2)

    def decide_fine_inputs(self, depths: tuple[int, ...]) -> tuple[int, ...]:
        able = self.pinned and depths[-1] > 1
        if self.config.fine_inputs == "auto":
            columns = fine_inputs(self.X, self.targets) if able else ()
            if columns:
                self.reasons["fine_inputs"] = f"The target has waves of many cycles along inputs {columns} (from 0)."
            return columns
        columns = tuple(int(j) for j in self.config.fine_inputs)
        if any(not 0 <= j < self.num_inputs for j in columns):
            raise ValueError(f"fine_inputs must be from 0 to {self.num_inputs - 1}; got {self.config.fine_inputs!r}.")
        return columns if able else ()

    def decide_covariance(self, num_directions: int) -> str:
        if self.config.covariance != "auto":
            return self.config.covariance
        blocks = 1 if self.points or self.paper else num_directions * self.sizes.hidden_width()
        if blocks <= WIDTH.max_blocks:
            return "block"
        self.reasons["covariance"] = f"{blocks} full covariances of a hidden layer would take too long: mean-field."
        return "mean-field"

    def start(self, kernel: str, num: int, band_limited: bool = False) -> Start | None:
        """Return where training should start, if the spectrum of a series can tell."""
        if not self.series or not self.pinned:
            return None
        return start_of_series(self.X[:, 0], self.targets, part(KERNELS, kernel).order, num, band_limited)

    def decide_band_limit(self, depths: tuple[int, ...]) -> bool:
        if self.config.band_limited != "auto":
            return self.config.band_limited == "yes"
        if depths != (1,) or not self.is_band_limited():
            return False
        self.reasons["band_limited"] = "The spectrum of the series has nothing beyond its last frequency."
        return True

    def is_band_limited(self) -> bool:
        """Return whether a series has nothing beyond its last frequency, where a kernel would have something."""
        if self.config.band_limited == "no" or not (self.series and self.pinned and self.complete):
            return False
        if self.num_rows * self.num_inducing > BAND_LIMIT.max_products:
            return False
        with_tail, without = (self.start(self.kernel, self.num_inducing, limited) for limited in (False, True))
        return with_tail is not None and without is not None and without.bound > with_tail.bound + BAND_LIMIT.gain_nats

    def decide_output(self, depths: tuple[int, ...], width: int, band_limited: bool, held_out: int) -> tuple[str, str]:
        """Decide how the output layer is found, and the likelihood, which depends on it."""
        output, config = self.config.output, self.config
        num_inputs = width if depths[-1] > 1 else self.num_inputs
        size = self.sizes.num_features(num_inputs, self.num_inducing, self.kernel)
        most_rows = OBJECTIVE.collapsed_rows_series if self.series else OBJECTIVE.collapsed_rows_table
        one_batch = self.num_rows <= most_rows and (self.series or depths == (1,))
        if output == "auto" and self.paper:
            output, self.reasons["output"] = paper_output(depths, self.complete, self.num_rows, size)
        elif output == "auto" and self.complete and (one_batch or band_limited):
            output = "collapsed"
            self.reasons["output"] = f"All {self.num_rows} rows fit into one batch: the closed form at every step."
        elif output == "auto":
            most = OBJECTIVE.max_features / self.targets.shape[1] ** 0.5  # each function has a covariance of its own
            output = "natural" if size <= most else "adam"
            how = "few enough" if output == "natural" else "too many"
            self.reasons["output"] = f"The output layer has {size} features, {how} for natural gradients."
        if output == "collapsed" and not self.complete:
            raise ValueError(
                "output='collapsed' needs likelihood='gaussian' and complete targets; use output='natural'."
            )
        likelihood = config.likelihood
        if likelihood == "auto":
            likelihood = "flexible" if output == "natural" and held_out else "gaussian"
            self.reasons["likelihood"] = (
                "Noise may vary with the inputs, with tails and skew, which held-out rows test."
                if likelihood == "flexible"
                else "Noise is Gaussian: no rows are held out that could test more."
            )
        return output, likelihood

    def decide_held_out(self, depths: tuple[int, ...]) -> int:
        num = min(int(HOLD_OUT.share * self.num_rows), HOLD_OUT.max_rows)
        if num < HOLD_OUT.min_rows:
            deep_table = depths[-1] > 1 and not self.series and self.num_rows >= EXACT.min_rows_depth
            num = int(HOLD_OUT.share_small * self.num_rows) if deep_table else 0
        none = "All rows are trained on" + (", as in the paper." if self.paper else ", since they are few.")
        num = 0 if self.paper else num
        self.reasons["held_out"] = f"{num} rows ({self.config.held_out}) tell when to stop." if num else none
        return num
