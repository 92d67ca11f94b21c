"""The thresholds of the autopilot's decisions: one record for each, with units and reasons.

Most were chosen by measurements that docs/inference.md records. To try another, replace a record's field and pass the
record to the function that decides by it.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class SpectrumPolicy:
    """How many frequencies a target needs along an input, judged by its spectrum."""

    min_frequencies: int = 6  # of each input; of a series twice as many
    max_frequencies_series: int = 1000
    max_frequencies_table: int = 8  # of each of several inputs; more cost more than they gain
    sample_rows: int = 4000  # of a table, at most: a periodogram of more says the same
    negligible_tail: float = 1e-3  # share of the variance beyond the highest frequency that does not matter
    smoothing: int = 5  # neighbouring frequencies whose power is averaged
    signal_to_noise: float = 5.0  # a wave counts if its smoothed power is so many times that of noise
    uneven_noise: float = 1.5  # times as much noise in long waves where points are scattered at random
    chance: float = 1e-3  # that noise alone passes for a wave of a table
    headroom: float = 1.15  # times the highest frequency: features should not end where the waves do


@dataclass(frozen=True)
class StartPolicy:
    """Where training starts; that of a series by a grid search of the bound in Whittle's approximation."""

    max_rows: int = 200_000  # at most, random ones, that decide about the model and where its parameters start
    lengthscales: int = 30  # between the distance of neighbours and the whole range
    variances: tuple[float, float, int] = (0.1, 10.0, 7)  # from, to, how many; for a target of variance 1
    noises: tuple[float, float, int] = (1e-8, 1.0, 33)
    noise: float = 0.1  # variance, where the spectrum says nothing
    least_noise: float = 1e-4  # variance, by differences of neighbours alone
    lengthscale: float = 0.2  # of the data's range, where the spectrum says nothing
    waves: float = 4.0  # lengthscale in units of the shortest wave that pinned features carry, at most


@dataclass(frozen=True)
class FrequencyPolicy:
    """How many inducing variables a layer gets, and which kernel a series."""

    points: int = 100  # inducing points
    paper: int = 50  # frequencies or points with the paper's preset
    min_frequencies: int = 4
    max_features: int = 1000  # of an output layer, whose covariance is dense
    series_growths: tuple[float, ...] = (1, 1.4)  # times the frequencies that the spectrum asks for
    series_kernels: tuple[str, ...] = ("matern32", "matern52")
    worth_nats: float = 0.1  # per row by the bound, for the next growth or kernel to be taken
    far_too_few: int = 8  # times fewer frequencies than the spectrum asks for are worth a warning


@dataclass(frozen=True)
class DepthPolicy:
    """When a series gets one layer only; otherwise it tries one, then two, and keeps the better."""

    max_frequencies: int = 100  # a series with more cycles needs all the time for them, unless it is short
    max_products: int = 200_000  # rows times frequencies of a short series
    shallow_share: float = 0.25  # of time and steps, to find out what one layer can do
    min_values: int = 20  # distinct ones of the input, to try two layers at all
    min_gain_nats: float = 3.0  # of the bound of all rows, for two layers to be kept


@dataclass(frozen=True)
class ExactPolicy:
    """When a fit starts with an exact GP, what its hyperparameters are expected to be, and what depth has to prove.

    The medians and spreads (of logarithms) were chosen on generated tables and those of scikit-learn.
    """

    max_rows: int = 2000
    fitted_rows: int = 1000  # that hyperparameters are fitted to, at most, and that have inducing points
    points_per_wave: int = 4  # of the fitted rows, at least, for each frequency that a longer series asks for
    kernel: str = "matern52"
    fast: tuple[float, float] = (0.1, 0.1)  # variance and lengthscale, relative to the slow function's, to start from
    lengthscale: float = 1.5  # times the square root of the number of inputs, which cover [0, 1]
    lengthscale_spread: float = 1.0
    start: float = 0.5  # lengthscale to start from, in the same unit: from longer ones, less is found
    variance_spread: float = 1.5  # about 1, the variance of the target
    noise: float = 0.3  # variance
    noise_spread: float = 1.5
    noises: tuple[float, ...] = (0.1, 1e-3)  # variances to start from; the second, which may be much better, where
    rows_twice: int = 500  # there are at most so many rows, or some rows are repeated
    time_share: float = 0.5  # of a time limit, at most, but
    min_steps: int = 40  # of L-BFGS are made even if compilation took it all
    min_rows_depth: int = 300  # to try two layers at all, with a time limit
    min_rows_depth_unasked: int = 1001  # without one: two layers take a minute, and rarely gain on fewer rows
    standard_errors: float = 2.0  # by which two layers must be better on rows that neither has seen


@dataclass(frozen=True)
class WidthPolicy:
    """How wide the layers of a table are."""

    max_directions: int = 40  # of a layer
    max_blocks: int = 200  # directions times units whose full covariances are affordable
    min_units: int = 10
    max_units: int = 16
    units_per_input: int = 4  # at most


@dataclass(frozen=True)
class FinePolicy:
    """Which inputs of a table get a function of many frequencies in the first layer."""

    frequencies: int = 500
    min_rows: int = 2000  # to look for fine structure
    sample_rows: int = 10_000  # that are looked at, at most
    share_of_lines: float = 0.2  # of what straight lines leave of the variance, in fine waves
    share_of_waves: float = 0.1  # of what random waves of several inputs leave
    random_waves: int = 500
    random_scales: tuple[float, ...] = (2, 4, 8, 16)  # of their slopes
    penalty: float = 1e-3  # of the ridge regression on them, per row
    max_columns: int = 100
    max_inputs: int = 3  # that may have it: more of them are one function of inputs that depend on each other
    max_cycles: int = 400  # of waves in all columns together
    grid: int = 2**14  # positions that inputs are rounded to
    variance: float = 0.1  # of all fine functions together, at the start
    kl_weight: float = 0.2  # with a diagonal q(v) and whole weight they learn too little


@dataclass(frozen=True)
class BandLimitPolicy:
    """When a series has no variance beyond its last frequency."""

    gain_nats: float = 0.5  # per row by the bound, for filtered sound it is 2, for other series below 0.1
    max_products: int = 40_000_000  # rows times frequencies that are quick enough in closed form
    least_noise: float = 3e-9  # variance: the rounding of hundreds of waves in single precision
    noises: tuple[float, float, int] = (3.3e-9, 1.0, 73)
    scales: tuple[float, float, int] = (1e-3, 1e3, 25)  # factors of the kernel's variance


@dataclass(frozen=True)
class ObjectivePolicy:
    """How the output layer is found, how fast training goes, and how long the hidden layers' divergence is annealed."""

    collapsed_rows_series: int = 4096  # taken as one batch
    collapsed_rows_table: int = 1024
    collapsed_draws: int = 4  # of the hidden layers: each is scored by what the others say
    max_features: int = 3000  # whose joint covariance is affordable, for one function
    learning_rate: float = 0.05  # of Adam
    learning_rate_points: float = 0.01  # inducing points are less steady; the paper's rate, too
    quasi_newton_products: int = 1_000_000_000  # rows times squared features that one evaluation of L-BFGS may take
    anneal_steps: int = 1000  # until the divergence of hidden layers counts whole, with minibatches


@dataclass(frozen=True)
class HoldOutPolicy:
    """Which share of the rows tells when to stop."""

    share: float = 0.1
    share_small: float = 0.2  # of a small table, which starts with an exact GP: half to stop by, half to choose by
    min_rows: int = 200  # fewer say too little, and all are trained on
    max_rows: int = 2000
    draws: int = 8  # of the hidden layers, for a score
    bound_draws: int = 32  # for a bound where nothing is held out


@dataclass(frozen=True)
class TimePolicy:
    """How the time of a fit is spent."""

    steps: int = 5000  # without a time limit
    unlimited: int = 10**6  # steps, with one
    reserved_share: float = 0.15  # of the time, for the closed form at last
    reserved_seconds: float = 8.0  # at most
    calibration_share: float = 0.1


@dataclass(frozen=True)
class NoisePolicy:
    """By which factor held-out rows may change flexible noise."""

    log_factors: tuple[float, float] = (-0.5, 1.0)
    precision: float = 0.03  # of the logarithm
    evaluations: int = 10


@dataclass(frozen=True)
class LocalPolicy:
    """When the neighbours of a row are asked, and how much time that takes."""

    max_rows: int = 1_000_000  # whose scores are kept
    min_rows: int = 500
    min_held_out: int = 100  # rows that test it
    min_gain_nats: float = 0.01  # per held-out row
    standard_errors: float = 2.0  # by which the gain has to be above 0
    time_share: float = 0.15  # of all time, of which
    scores_share: float = 0.08  # is for the scores of training rows,
    fit_share: float = 0.06  # and for the search of lengthscales


SPECTRUM, START, FREQUENCIES, DEPTH = SpectrumPolicy(), StartPolicy(), FrequencyPolicy(), DepthPolicy()
EXACT, WIDTH, FINE, BAND_LIMIT = ExactPolicy(), WidthPolicy(), FinePolicy(), BandLimitPolicy()
OBJECTIVE, HOLD_OUT, TIME, NOISE = ObjectivePolicy(), HoldOutPolicy(), TimePolicy(), NoisePolicy()
LOCAL = LocalPolicy()
