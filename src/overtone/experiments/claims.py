"""What the paper claims, what our records say of it, and a verdict by a rule that is written down here.

Each claim has a function of the records of one experiment that returns our figure in words and how far it holds, from 0
(not at all) to 1 (all of it), or None if records cannot tell. Why we think so is in docs/paper.md, in prose.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from overtone.experiments.methods import DGP, FEATURES, OURS, PAPER, SVGP, VFF
from overtone.experiments.summaries import groups, mean, paired_gain, select

Finding = tuple[str, float | None]
WAYS = PAPER, FEATURES, OURS


class Claim(NamedTuple):
    """A claim of the paper, where it stands, and how records are asked."""

    text: str
    where: str
    experiment: str
    ask: Callable[[list[dict]], Finding]


NOT_RUN = "not run yet"


def verdict(share: float | None) -> str:
    """Return the verdict for the share of a claim that holds."""
    if share is None or np.isnan(share):
        return "not testable here"
    return "reproduced" if share >= 0.9 else "partly" if share >= 0.4 else "not reproduced"


def _steps_order(records: list[dict]) -> Finding:
    found = {m: mean(select(records, method=f"{m}, 2 layers"), "log_density") for m in (*WAYS, DGP)}
    found[VFF] = mean(select(records, method=VFF), "log_density")
    theirs, conventional = (select(records, method=f"{m}, 2 layers") for m in (PAPER, DGP))
    gain, error = paired_gain(theirs, conventional, "log_density")
    text = ", ".join(f"{name} {value:.2f}" for name, value in found.items())
    holds = [found[PAPER] > found[DGP], found[PAPER] > found[VFF]]
    return f"log density: {text}; paper's mode over DGP {gain:+.2f} ± {error:.2f}", float(np.mean(holds))


def _steps_hidden(records: list[dict]) -> Finding:
    def first(method: str, name: str) -> float:
        return float(np.mean([each[name][0] for each in select(records, method=method)] or [np.nan]))

    names = [*(f"{way}, {n} layers" for way in (PAPER, OURS) for n in (2, 3)), "DGP, 2 layers", "DGP, 3 layers"]
    scores = {name: first(name, "monotonicity") for name in names}
    text = ", ".join(f"{name} {score:.2f}" for name, score in scores.items())
    holds = [scores[f"{way}, {n} layers"] < scores[f"DGP, {n} layers"] - 0.1 for way in (PAPER, OURS) for n in (2, 3)]
    return f"monotonicity of layer 1: {text}", float(np.mean(holds))


def _steps_depth(records: list[dict]) -> Finding:
    gains = {}
    for way in (PAPER, OURS):
        three, two = (select(records, method=f"{way}, {n} layers") for n in (3, 2))
        gains[way] = paired_gain(three, two, "log_density")
    text = ", ".join(f"{way} {gain:+.2f} ± {error:.2f}" for way, (gain, error) in gains.items())
    return f"three layers over two: {text}", float(np.mean([gain < 2 * error for gain, error in gains.values()]))


def _audio_small(records: list[dict]) -> Finding:
    group = select(records, size=352)
    spans = {m: _span(select(group, method=m)) for m in (PAPER, OURS, DGP)}
    text = ", ".join(f"{m} {low:.3f} to {high:.3f}" for m, (low, high) in spans.items())
    holds = [high - low < 0.1 for low, high in spans.values()]
    return f"RMSE from best to worst number, 352 samples: {text}", float(np.mean(holds))


def _span(records: list[dict]) -> tuple[float, float]:
    means = [mean(group, "rmse") for group in groups(records, "inducing").values()] or [float("nan")]
    return min(means), max(means)


def _audio_needed(size: int) -> Callable[[list[dict]], Finding]:
    def ask(records: list[dict]) -> Finding:
        from overtone.experiments.audio import ERRORS, needed

        if not select(records, size=size):
            return NOT_RUN, None
        texts, holds = [], []
        for error in ERRORS:
            counts = {m: needed(records, m, size, error) for m in (*WAYS, DGP)}
            texts.append(f"RMSE {error}: " + ", ".join(f"{m} {_count(k)}" for m, k in counts.items()))
            if np.isfinite([counts[PAPER], counts[DGP]]).any():
                holds.append(counts[PAPER] < 0.5 * counts[DGP])
        return f"needed for {'; '.join(texts)}", float(np.mean(holds)) if holds else None

    return ask


def _count(number: float) -> str:
    return f"{number:.0f}" if np.isfinite(number) else "> 200"


def _audio_calibration(records: list[dict]) -> Finding:
    group = select(records, size=3526, inducing=20)
    if not {PAPER, DGP} <= {each["method"] for each in group}:
        return NOT_RUN, None
    missed = {m: abs(mean(select(group, method=m), "coverage_95") - 0.95) for m in (*WAYS, VFF, DGP)}
    text = ", ".join(f"{m} {100 * mean(select(group, method=m), 'coverage_95'):.0f} %" for m in missed)
    return f"inside 95 % intervals, 3,526 samples: {text}", float(missed[PAPER] < missed[DGP])


def _real_world(name: str, sign: int) -> Callable[[list[dict]], Finding]:
    def ask(records: list[dict]) -> Finding:
        from overtone.experiments.real_world import winners

        best, shares = {}, {}
        for way in (PAPER, OURS):
            best[way] = winners(records, name, sign, way, DGP, VFF, SVGP)
            shares[way] = np.mean([method.startswith(way) for method in best[way].values()] or [np.nan])
        text = "; ".join(
            f"{way} best on {sum(method.startswith(way) for method in found.values())} of {len(found)}"
            + "".join(f", {data}: {method}" for data, method in found.items() if not method.startswith(way))
            for way, found in best.items()
        )
        return text, float(shares[PAPER])

    return ask


def _kernels(records: list[dict]) -> Finding:
    gains = []
    for data, layers in groups([{**r, "n": n} for r in records for n in (2, 4)], "data", "n"):
        rbf, matern = (select(records, data=data, method=f"DGP, {layers} layers, {k}") for k in ("RBF", "Matern"))
        gains.append(mean(rbf, "log_density") - mean(matern, "log_density"))
    held = np.array(gains)[np.isfinite(gains)] > 0
    return f"RBF has the higher log density in {held.sum()} of {len(held)} comparisons", _share(held)


def _share(held: np.ndarray) -> float | None:
    return float(np.mean(held)) if len(held) else None


def _airline(records: list[dict]) -> Finding:
    held, texts = [], []
    for (data, size), group in groups([r for r in records if not r["source"]], "data", "size").items():
        found = {m: mean(select(group, method=m), "rmse") for m in (*WAYS, VFF, DGP, SVGP)}
        rows = f"{size:,} rows" if size else "all rows"
        texts.append(f"{data}, {rows}: " + ", ".join(f"{m} {value:.3f}" for m, value in found.items()))
        held += [found[PAPER] < found[other] for other in (VFF, DGP, SVGP)]
    return f"RMSE, {'; '.join(texts)}; other flights than the paper's", _share(np.array(held))


def _uci(records: list[dict]) -> Finding:
    held = []
    for (data,) in groups(records, "data"):
        ours, theirs = (select(records, data=data, method=method) for method in (PAPER, DGP))
        gain, error = paired_gain(ours, theirs, "log_density")
        held.append(gain > -max(2 * np.nan_to_num(error), 0.05))
    text = f"paper's mode is level with DGP or better on {sum(held)} of {len(held)} tables in log density"
    return text, _share(np.array(held))


def _step_time(records: list[dict]) -> Finding:
    steps, texts, held = select(records, part="step", inducing=50), [], []
    for (inputs,), group in groups(steps, "inputs").items():
        ours, theirs = (mean(select(group, method=m), "milliseconds") for m in (PAPER, DGP))
        texts.append(f"{inputs} inputs: {ours:.1f} and {theirs:.1f} ms")
        held.append(0.5 < ours / theirs < 2)
    return f"frequencies and points, 50 each, {', '.join(texts)}", _share(np.array(held))


def _curve(records: list[dict]) -> Finding:
    curves, held, texts = select(records, part="curve"), [], []
    for (budget,), group in groups(curves, "budget").items():
        found = {m: mean(select(group, method=m), "rmse") for m in (PAPER, OURS, DGP)}
        held.append(found[PAPER] < found[DGP])
        texts.append(f"{budget} s: " + ", ".join(f"{m} {value:.3f}" for m, value in found.items()))
    return f"RMSE on traffic after {'; '.join(texts)}", _share(np.array(held))


def _depth(records: list[dict]) -> Finding:
    held, texts = [], []
    for (data, method), group in groups(records, "data", "method").items():
        two, *more = (mean(select(group, depth=depth), "log_density") for depth in (2, 3, 4))
        held.append(max(more) < two + 0.05)
        texts.append(f"{data}, {method}: {max(more) - two:+.2f}")
    return f"best of three and four layers over two, nats: {', '.join(texts)}", _share(np.array(held))


CLAIMS = (
    Claim("ID-DGP models the steps and plateaus better than DGP and VFF", "Figure 3", "steps", _steps_order),
    Claim("Its first hidden layer is not monotone; that of DGP roughly is", "Figure 3, app.", "steps", _steps_hidden),
    Claim("A third layer makes no significant difference", "appendix", "steps", _steps_depth),
    Claim("352 samples: the number of inducing variables does not matter", "Figure 4, left", "audio", _audio_small),
    Claim("3,526 samples: fewer frequencies than points are needed", "Figure 4, middle", "audio", _audio_needed(3526)),
    Claim("35,267 samples: fewer than half are needed", "Figure 4, right", "audio", _audio_needed(35267)),
    Claim("With 20 inducing variables ID-DGP is better calibrated than DGP", "Figure 1", "audio", _audio_calibration),
    Claim(
        "ID-DGP has the best test log-likelihood on all six", "Figure 5", "real-world", _real_world("log_density", 1)
    ),
    Claim("ID-DGP has the lowest RMSE on all six", "appendix", "real-world", _real_world("rmse", -1)),
    Claim("Conventional deep GPs do better with RBF than with Matern-3/2", "appendix", "real-world", _kernels),
    Claim("ID-DGP has the lowest RMSE on flight delays", "Table 1", "airline", _airline),
    Claim("Without global structure, ID-DGP is on par", "appendix", "uci", _uci),
    Claim("A gradient step takes as long for frequencies as for points", "section 4.2", "efficiency", _step_time),
    Claim("ID-DGP reaches a given accuracy sooner", "section 3.4", "efficiency", _curve),
    Claim("More than two layers do not help ID-DGP", "Figure 5", "depth", _depth),
)
