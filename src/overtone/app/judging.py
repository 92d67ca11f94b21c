"""Judge predictions: beside baselines on the same rows, by the share of variance that is explained, and by coverage."""

from dataclasses import dataclass
from typing import Any

from overtone.app.loading import MIN_ROWS, coverage_warnings, log_unknown
from overtone.estimators.ranges import counted, outside_sentence
from overtone.tables.rows import Rows

Metrics = dict[str, float]


@dataclass(frozen=True)
class VerdictPolicy:
    """Hold the thresholds of a verdict: differences up to these are none.

    min_nats: of log density per row. noise_nats: what is added to it, over the root of the number of rows.
    min_share: of the variance that is explained, or of rows whose class is right. noise_share: as above.
    most: the share from which on a percentage would be rounded to all.
    """

    min_nats: float = 0.02
    noise_nats: float = 0.5
    min_share: float = 0.01
    noise_share: float = 0.1
    most: float = 0.995


POLICY = VerdictPolicy()
WORDS = {
    "mean": "the mean",
    "straight line": "a straight line",
    "constant rate": "a constant rate",
    "class frequencies": "the class frequencies",
    "seasonal naive": "the seasonal naive",
}


@dataclass(frozen=True)
class Judgement:
    """Hold the metrics of the predictions of a target, those of each baseline by its name, and a verdict in words."""

    metrics: Metrics
    baselines: dict[str, Metrics]

    @property
    def verdict(self) -> str:
        return verdict(self.metrics, self.baselines)

    def as_json(self) -> dict[str, Any]:
        """Return the metrics, and all else under names of its own."""
        return {**self.metrics, "baselines": self.baselines, "verdict": self.verdict}


def judge(model: Any, X: Any, y: Any, **exposure: Any) -> dict[str, Judgement]:
    """Return how good the predictions of each target are, by its name."""
    names = model.target_names
    if len(names) == 1:
        return {names[0]: Judgement(model.evaluate(X, y, **exposure), model.evaluate_baselines(X, y, **exposure))}
    columns = enumerate(model.evaluate_outputs(X, y, **exposure))
    baselines = [(metrics, model.evaluate_baselines(X, y, **exposure, output=i)) for i, metrics in columns]
    return {name: Judgement(*pair) for name, pair in zip(names, baselines, strict=True)}


def judge_rows(model: Any, rows: Rows) -> dict[str, Judgement]:
    """Return how good the predictions of each target are, and say how many rows are extrapolated."""
    log_unknown(outside_sentence(counted(model.is_outside(rows.X)), len(rows), model.input_names))
    return judge(model, rows.X, rows.y, **rows.keywords)


def verdict(metrics: Metrics, baselines: dict[str, Metrics], policy: VerdictPolicy = POLICY) -> str:
    """Return in a sentence how good predictions are."""
    share = "accuracy" if "accuracy" in metrics else "r2"
    clauses = [_share_in_words(metrics, baselines, share, policy)]
    if baselines:
        clauses.insert(0, _density_in_words(metrics, baselines, policy))
    if share == "r2":
        clauses.append(_coverage_in_words(metrics))
    text = "; ".join(clauses)
    return f"{text[0].upper()}{text[1:]}."


def _density_in_words(metrics: Metrics, baselines: dict[str, Metrics], policy: VerdictPolicy) -> str:
    best, gain = _best(metrics, baselines, "log_density")
    if abs(gain) <= policy.min_nats + policy.noise_nats / metrics["rows"] ** 0.5:
        return f"no better than {best}"
    return f"{'better' if gain > 0 else 'worse'} than {best} by {abs(gain):.2f} nats per row"


def _share_in_words(metrics: Metrics, baselines: dict[str, Metrics], name: str, policy: VerdictPolicy) -> str:
    least, value = policy.min_share + policy.noise_share / metrics["rows"] ** 0.5, metrics[name]
    share = f"{value:.0%}" if value < policy.most else "nearly all"
    share = "none" if value < policy.min_share else share
    text = f"{share} of the rows are right" if name == "accuracy" else f"explains {share} of the variance"
    best, gain = _best(metrics, baselines, name) if baselines else ("", 0.0)
    return f"{text}, and {best} {value - gain:.0%}" if gain < -least and value - gain > policy.min_share else text


def _coverage_in_words(metrics: Metrics) -> str:
    if metrics["rows"] < MIN_ROWS:
        return "there are too few rows to judge its intervals"
    faults = [name for name in ("narrow", "wide") if any(f"too {name}" in text for text in coverage_warnings(metrics))]
    return f"intervals are {' or '.join(f'too {fault}' for fault in faults) or 'honest'}"


def _best(metrics: Metrics, baselines: dict[str, Metrics], name: str) -> tuple[str, float]:
    """Return the best baseline by a metric, in words, and what the predictions gain over it."""
    best = max(baselines, key=lambda baseline: baselines[baseline][name])
    return WORDS.get(best, best), metrics[name] - baselines[best][name]


def print_judgements(judgements: dict[str, Judgement]) -> None:
    """Print the metrics and those of the baselines, in a column each or a table each, and a verdict on each target."""
    targets, judged = list(judgements), list(judgements.values())
    names = list(judged[0].baselines)
    if len(targets) == 1:
        _print_table("", [*targets, *names], [judged[0].metrics, *judged[0].baselines.values()])
    else:
        _print_table("", targets, [each.metrics for each in judged])
        for name in names:
            _print_table(name, targets, [each.baselines[name] for each in judged])
    for target, each in judgements.items():
        for text in (each.verdict, *coverage_warnings(each.metrics)):
            print(f"    {target}: {text}" if len(targets) > 1 else f"    {text}")


def _print_table(title: str, names: list[str], columns: list[Metrics]) -> None:
    print(f"    {title:20}" + "".join(f" {name:>19}" for name in names))
    for metric in columns[0]:
        cells = "".join(f" {metrics[metric]:>19.6g}" for metrics in columns)
        print(f"    {metric.replace('_', ' '):20}{cells}")
    print()
