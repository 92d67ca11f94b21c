"""One frozen Config is the source of the estimator's parameters and of a model's recipe."""

from dataclasses import dataclass, fields
from math import isfinite
from numbers import Integral, Real
from typing import Any, TypeGuard

from overtone.autopilot.names import COVARIANCES, FEATURES, KERNELS, LIKELIHOODS, OBJECTIVES

ALLOWED = {
    "method": ("id-dgp", "dgp", "vff", "svgp"),
    "features": ("auto", *FEATURES),
    "kernel": ("auto", *KERNELS),
    "covariance": ("auto", *COVARIANCES),
    "band_limited": ("auto", "yes", "no"),
    "neighbours": ("auto", "yes", "no"),
    "output": ("auto", *OBJECTIVES),
    "likelihood": ("auto", *LIKELIHOODS),
    "preset": ("default", "paper"),
    "held_out": ("random", "last"),
    "missing": ("error", "drop", "mean"),
    "dtype": ("float32", "float64"),
}
# Settings that ask for a certain model. With all of them left open, a small table or series starts with an exact GP.
STRUCTURE = (
    *("method", "n_layers", "n_inducing", "features", "hidden_width", "n_projections", "fine_inputs"),
    *("covariance", "band_limited", "output", "interval"),
)


@dataclass(frozen=True)
class Config:
    """What a user asks for: everything that decides a fit, besides the data. What "auto" leaves open, a plan decides.

    method: "id-dgp" (deep, Fourier features), "dgp" (deep, inducing points), "vff" and "svgp" (their
        shallow counterparts).
    n_layers: the number of GP layers. "auto" is 1 for the shallow methods and 2 for the deep ones; but "id-dgp", unless
        it is the paper's preset, trains one layer first where there is one input, or where a table has at most 2,000
        rows and no other setting asks for a certain model (an exact GP then), and keeps two layers if they are better.
    n_inducing: frequencies (M of them are 2M + 1 inducing variables per input) or inducing points. "auto" takes as many
        frequencies as the target's spectrum asks for, or 100 points; 50 of either with the paper's preset.
    features: how the functions of a layer are known. "auto" follows the method and the preset: "pinned" Fourier
        features, the paper's "fourier" features, or "points". "bsplines" are compactly supported splines.
    hidden_width: units in each hidden layer. None is 10 to 16, the more the fewer the inputs; but 8 for two inputs, 1
        for one, and for inducing points as many as inputs, at most 10; with the paper's preset as many as inputs.
    n_projections: learned directions along which the functions of a layer of Fourier features vary; as many
        as inputs are the inputs themselves. None is 2D + 1 for D inputs, at most 40; for one input, the input itself.
    fine_inputs: numbers of the inputs, from 0, whose fine structure the first of several layers follows, by a function
        of 500 frequencies each. "auto" finds them in the spectrum of the target along each of several inputs.
    kernel: "matern12", "matern32", "matern52" or "rbf" (points only); "auto" is "matern32" for Fourier
        features and "rbf" for points, the better choice of each in the paper; but for a series whose frequencies are
        chosen too, "matern52" where its spectrum falls off steeply.
    covariance: the covariance of q(v). "block" is full for each input of a Fourier layer, "joint" is full over all
        inputs, "mean-field" a diagonal, the choice for hundreds of frequencies. Layers of inducing points have one
        block. "auto" is "block", and "mean-field" where a layer has hundreds of frequencies (not with the paper's
        preset).
    band_limited: whether a series has no waves beyond its frequencies, "yes" or "no". Then a shallow model needs no
        variance for them, and the noise may be tiny. "auto" asks the spectrum.
    output: how the output layer's q(v) is found. "collapsed" takes the best one in closed form at every step,
        which needs all rows in a batch; "natural" follows it from batch to batch, and takes the closed form at the end;
        "adam" trains it like the rest, as in the paper. "auto" is "collapsed" for up to 4,096 rows of a series
        or 1,024 of one layer, otherwise "natural" ("adam" with thousands of variables). With the paper's preset it is
        "adam" for deep models; shallow ones take the closed form and L-BFGS over all rows, or "adam" if there are many.
    likelihood: for numbers, "gaussian" noise of one variance; "flexible", a mixture of Gaussians that varies with the
        inputs, for data with outliers, skew or several modes, or that are noisier in some regions; "student-t", for
        outliers alone; "heteroscedastic", Gaussian noise whose variance is a function of its own. For counts,
        "poisson", or "negative-binomial", which may vary more than that. For classes, "bernoulli" for two and "softmax"
        for several. "auto" chooses by the target: classes for text and yes or no; "negative-binomial" for small whole
        numbers and zeros; for other numbers "flexible" where held-out rows can test it, and "gaussian" otherwise, with
        a variance that varies with the inputs if the residuals of one layer ask for it.
    neighbours: whether the training rows nearest to a new one correct what the deep GP predicts, if held-out rows say
        that it pays: numbers only. "auto" is yes for "id-dgp" but for the paper's preset. Model files then hold the
        inputs of training rows.
    preset: "default" pins the Fourier features at both ends of an interval around the data, which is learned in each
        hidden layer and dimension; "paper" is faithful to the paper, for all four methods: plain features on the fixed
        interval [-2, 3], Gaussian noise, q(v) in full blocks, Adam at one rate for all of it (L-BFGS for one layer), no
        rows held out, and nothing changed afterwards. docs/paper.md lists what still differs.
    interval: [a, b] of the Fourier features in every layer, where [0, 1] is the range of the data; it stays fixed then.
        None leaves it to the preset.
    max_steps: training ends after so many steps, or earlier, once the log density of held-out rows no longer rises.
        None is 5,000 steps, or as many as there is time for.
    max_time: training ends after about so many seconds, if not earlier. Results repeat exactly only without a time. On
        the command line, where 90s, 5m and 1h are times, it is for all of `overtone fit`, start-up and scores included.
    held_out: which rows tell when to stop and how deep the model should be. "random" ones, for predictions among the
        training rows; the "last" tenth, in the order given, for predictions after them. On the command line the order
        is that of the first column of dates, if there is one, and the rows to test on are the last, too.
    batch_size: the rows of a minibatch.
    n_samples: the draws of the hidden layers in a step of training; None is 4 for the closed form, where each draw is
        scored by what the others say (so there are at least two), and 1 otherwise.
    learning_rate: the rate of Adam; None is 0.05 for Fourier features, 0.01 for points, which are less steady, and 0.01
        with the paper's preset.
    n_predict_samples: the draws of the hidden layers in a prediction; None is 64, or 32 and at least two for each unit
        where there are 8 hidden units or more.
    missing: what to do about rows with missing inputs. "error" names the columns; "drop" trains without such rows, and
        predicts nothing (NaN, or an empty cell) for them; "mean" fills in the mean of the training rows.
    dtype: "float32" or "float64".
    random_state: the seed of everything random.
    """

    method: str = "id-dgp"
    n_layers: int | str = "auto"
    n_inducing: int | str = "auto"
    features: str = "auto"
    hidden_width: int | None = None
    n_projections: int | None = None
    fine_inputs: tuple[int, ...] | str = "auto"
    kernel: str = "auto"
    covariance: str = "auto"
    band_limited: str = "auto"
    output: str = "auto"
    neighbours: str = "auto"
    likelihood: str = "auto"
    preset: str = "default"
    interval: tuple[float, float] | None = None
    max_steps: int | None = None
    max_time: float | None = None
    held_out: str = "random"
    batch_size: int = 512
    learning_rate: float | None = None
    n_samples: int | None = None
    n_predict_samples: int | None = None
    missing: str = "error"
    dtype: str = "float32"
    random_state: int = 0

    def validate(self) -> None:
        """Raise a ValueError that says what was wrong, what was got and what to do."""
        for name, allowed in ALLOWED.items():
            value = getattr(self, name)
            if value not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}; got {value!r}.")
        checked_whole("batch_size", self.batch_size)
        for name in ("hidden_width", "n_projections", "max_steps", "n_samples", "n_predict_samples"):
            if getattr(self, name) is not None:
                checked_whole(name, getattr(self, name))
        for name in ("n_layers", "n_inducing"):
            if getattr(self, name) != "auto":
                checked_whole(name, getattr(self, name), or_else=' or "auto"')
        if self.fine_inputs != "auto" and not _are(self.fine_inputs, Integral):
            raise ValueError(f"fine_inputs must be a tuple of numbers of inputs, or 'auto'; got {self.fine_inputs!r}.")
        if self.learning_rate is not None and not (_is_real(self.learning_rate) and 0 < self.learning_rate < 1):
            raise ValueError(f"learning_rate must be between 0 and 1; got {self.learning_rate!r}.")
        if self.max_time is not None and not (_is_real(self.max_time) and self.max_time > 0):
            raise ValueError(f"max_time must be a positive number of seconds; got {self.max_time!r}.")
        if self.interval is not None and not _contains_the_data(self.interval):
            raise ValueError(
                f"interval must contain [0, 1], where the scaled data lie, as the paper's (-2, 3) does; "
                f"got {self.interval!r}."
            )
        self._check_together()

    def _check_together(self) -> None:
        """Raise a ValueError if settings contradict each other."""
        deep, layers = self.method in DEEP, self.n_layers
        if not deep and layers not in ("auto", 1):
            raise ValueError(
                f"method {self.method!r} has one layer; got n_layers={layers}. Leave n_layers at 'auto', or "
                f"use method='id-dgp' or 'dgp' for a deep model."
            )
        points = self.features == "points" or (self.features == "auto" and self.method not in FOURIER)
        if not points and self.kernel == "rbf":
            raise ValueError(
                f"method {self.method!r} needs a Matern kernel; got kernel='rbf'. Use 'matern12', 'matern32' or "
                f"'matern52', or a method with inducing points."
            )
        if self.features != "auto" and (self.features == "points") == (self.method in FOURIER):
            raise ValueError(
                f"method={self.method!r} and features={self.features!r} contradict each other; leave features 'auto'."
            )
        one_layer = not deep or layers == 1
        pinned = self.method in FOURIER and self.preset != "paper" and self.features in ("auto", "pinned")
        if self.band_limited == "yes" and not (one_layer and pinned):
            raise ValueError(
                "band_limited='yes' is for one layer of Fourier features; use method='vff' or n_layers=1, and not the "
                "paper's preset."
            )


DEEP, FOURIER = ("id-dgp", "dgp"), ("id-dgp", "vff")  # methods
PARAMETERS = tuple(f.name for f in fields(Config))


def _are(values: object, kind: type) -> TypeGuard[tuple]:
    """Return whether something is a tuple of finite numbers of one kind."""
    return isinstance(values, tuple) and all(isinstance(each, kind) and _is_real(each) for each in values)


def _contains_the_data(interval: object) -> bool:
    return _are(interval, Real) and len(interval) == 2 and interval[0] <= 0 < 1 <= interval[1]


def _is_real(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and isfinite(value)


def checked_whole(name: str, value: Any, or_else: str = "") -> int:
    """Return a number of things, at least one, or raise a ValueError."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1{or_else}; got {value!r}.")
    return int(value)
