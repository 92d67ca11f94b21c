"""Make tables and plots of the results from the JSON lines.

python -m benchmarks.page
"""

import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from benchmarks import budgets, prediction
from overtone.numerics.quadratic import FFT_FREQUENCIES

RESULTS = Path(__file__).parent / "results"
TITLES = {
    "D1-M50": "One input, 50 frequencies against 101 points",
    "D8-M50": "Eight inputs, eight hidden units, 50 frequencies against 101 points",
    "D1-M500": "One input, 500 frequencies against 1,001 points",
}
COVARIANCES = {"block": "full covariance", "mean-field": "diagonal covariance"}
RUNS = ("empty cache", "filled cache")
CALLS = 750  # operations of a compiled step of two layers, counted in a profile


def read(name: str) -> list[dict]:
    """Return the lines of one file of results."""
    return [json.loads(line) for line in (RESULTS / f"{name}.jsonl").read_text().splitlines()]


def label(line: dict) -> str:
    """Return what a reader calls the model of a line."""
    if line["library"] != "overtone":
        return {"gpytorch": "GPyTorch", "gpflux": "GPflux"}[line["library"]] + f", {line['points']:,} points"
    if line.get("preset") == "paper":
        return "Overtone, the paper's features, full covariance"
    return f"Overtone, {COVARIANCES[line['covariance']]}"


def table(header: list[str], rows: list[list[str]]) -> str:
    """Return a table in Markdown."""
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def grouped(lines: list[dict], key) -> dict:
    """Return the milliseconds of all lines with the same key."""
    groups: dict = {}
    for line in lines:
        groups.setdefault(key(line), []).append(line["milliseconds"])
    return groups


def comparisons(lines: list[dict]) -> str:
    """Return a table for each comparison with the peers."""
    text = ""
    for name, title in TITLES.items():
        times = grouped([line for line in lines if line["comparison"] == name], label)
        (peer,) = (key for key in times if key.startswith("GPyTorch"))
        rows = []
        for key, values in sorted(times.items(), key=lambda item: np.median(item[1])):
            low, middle, high = np.percentile(values, [25, 50, 75])
            ratios = np.asarray(times[peer]) / np.asarray(values)  # round by round
            rows.append([key, f"{middle:.2f}", f"{low:.2f} to {high:.2f}", f"{np.median(ratios):.1f}x"])
        text += f"### {title}\n\n"
        text += table(["", "ms per step", "quartiles", "GPyTorch's time over it"], rows) + "\n"
    return text


def ratios(lines: list[dict], name: str) -> dict[str, float]:
    """Return GPyTorch's time over ours, for each covariance."""
    times = grouped([line for line in lines if line["comparison"] == name], label)
    (peer,) = (key for key in times if key.startswith("GPyTorch"))
    return {
        title: float(np.median(np.asarray(times[peer]) / np.asarray(times[f"Overtone, {title}"])))
        for title in COVARIANCES.values()
    }


def verdicts(lines: list[dict]) -> str:
    """Say what was aimed at, and what came out."""

    def judged(goal: str, measured: dict[str, float], limit: float, at_most: bool, unit: str) -> str:
        reached = [(value <= limit) == at_most or value == limit for value in measured.values()]
        word = "reached" if all(reached) else "missed" if not any(reached) else "reached by some"
        values = ", ".join(
            f"{value:.3g}{unit} ({name})" if name else f"{value:.3g}{unit}" for name, value in measured.items()
        )
        return f"- {goal}, {'at most' if at_most else 'at least'} {limit:g}{unit}: **{word}**, {values}.\n"

    growing = [line for line in lines if line["comparison"] == "growth"]
    slow = grouped(growing, lambda line: (line["covariance"], line["frequencies"]))
    grown = {title: np.median(slow[key, 500]) / np.median(slow[key, 50]) for key, title in COVARIANCES.items()}
    pinned = [line for line in read("residuals") if line["features"].startswith("pinned")]
    worst = {order: max(line["ratio"] for line in pinned if line["order"] == order) for order in (0, 1, 2)}
    starts = {run: float(np.median([s["first_step"] for s in read("startup") if s["run"] == run])) for run in RUNS}
    (memory,) = read("memory")
    text = "What was aimed at, and what came out:\n\n"
    for name, goal in (("D1-M50", 8), ("D8-M50", 4), ("D1-M500", 50)):
        text += judged(f"{TITLES[name]}: GPyTorch's time over ours", ratios(lines, name), goal, False, "x")
    text += judged("Growth from 50 to 500 frequencies", grown, 12, True, "x")
    for order, goal in ((0, 1.1), (1, 1.25), (2, 1.6)):
        what = f"Residual over the Karhunen-Loeve optimum, nu = {2 * order + 1}/2"
        text += judged(what, {"": worst[order]}, goal, True, "")
    text += judged("First step, empty cache", {"": starts[RUNS[0]]}, 10, True, " s")
    text += judged("First step, filled cache", {"": starts[RUNS[1]]}, 2, True, " s")
    more = memory["peak"] - memory["data"]
    added = memory["peak"] - memory["before_fit"]
    text += judged("Memory that a fit adds to a process with the data", {"": added}, 500, True, " MB")
    return (
        text + judged("Memory of the whole process, libraries too, above the data", {"": more}, 500, True, " MB") + "\n"
    )


def growth(lines: list[dict]) -> str:
    """Return a table of times over the number of frequencies, and draw it."""
    lines = [line for line in lines if line["comparison"] == "growth"]
    times = grouped(lines, lambda line: (line["covariance"], line["frequencies"]))
    numbers = sorted({frequencies for _, frequencies in times})
    rows, axes = [], plt.subplots(figsize=(6, 4), layout="constrained")[1]
    for covariance, name in COVARIANCES.items():
        medians = [float(np.median(times[covariance, frequencies])) for frequencies in numbers]
        rows.append([name, *(f"{m:.1f}" for m in medians), f"{medians[-1] / medians[0]:.1f}x"])
        axes.loglog(numbers, medians, "o-", label=name)
    axes.set(xlabel="frequencies", ylabel="ms per step", title="One input, batches of 8,192 rows")
    axes.legend()
    axes.figure.savefig(RESULTS / "growth.png", dpi=120)
    header = ["ms per step", *(f"M = {n}" for n in numbers), f"from {numbers[0]} to {numbers[-1]}"]
    return table(header, rows) + "\n![Step time over the number of frequencies](growth.png)\n\n"


def bars(lines: list[dict]) -> None:
    """Draw the time of a step of every model."""
    figure, all_axes = plt.subplots(3, 1, figsize=(8, 8), layout="constrained")
    for axes, (name, title) in zip(all_axes, TITLES.items(), strict=True):
        times = grouped([line for line in lines if line["comparison"] == name], label)
        names = sorted(times, key=lambda key: -np.median(times[key]))
        colours = ["C0" if key.startswith("Overtone") else "0.6" for key in names]
        drawn = axes.barh(names, [np.median(times[key]) for key in names], color=colours)
        axes.bar_label(drawn, fmt=" %.3g", fontsize=8)
        axes.set_xlabel("ms per step", fontsize=8)
        axes.set_title(title, fontsize=9)
        axes.tick_params(labelsize=8)
        axes.margins(x=0.12)
    figure.savefig(RESULTS / "steps.png", dpi=120)


def work(inputs: int, outputs: int, frequencies: int, rows: int, covariance: str, slopes: bool) -> tuple[float, float]:
    """Return operations and bytes that a layer cannot do without: value and gradient, a Matern kernel of order 1."""
    size, width = 2, 2 * frequencies + 5
    rank = {"block": width, "mean-field": 0}[covariance]
    crossed = outputs * size * (1 if covariance == "mean-field" else 2)
    products = rows * 2 * frequencies * (2 * outputs + outputs + size + crossed)  # degree 2M counts twice
    forms = (4 * frequencies + 2 + 3 * size) * width * outputs * rank
    if frequencies >= FFT_FREQUENCIES:  # fast Fourier transforms
        points = 4 * frequencies
        forms = 1.25 * points * np.log2(points) * outputs * rank + (3 + 2) * size * width * outputs * rank
    operations = 2 * inputs * (products * (3 if slopes else 2) + 2 * forms)
    parameters = inputs * outputs * width * (rank + 2)
    return operations, 4.0 * inputs * (3 * rows * 4 * frequencies) + 4.0 * 8 * parameters


def floor(lines: list[dict]) -> str:
    """Compare the time of a step with the least that this machine would need."""
    (machine,) = read("machine")
    rows = []
    for name in TITLES:
        times = grouped([line for line in lines if line["comparison"] == name], lambda line: line.get("covariance"))
        first = next(line for line in lines if line["comparison"] == name)
        inputs, frequencies = first["inputs"], first["frequencies"]
        for covariance, title in COVARIANCES.items():
            layers = [(inputs, inputs, False), (inputs, 1, True)]
            both = [work(d, p, frequencies, 1024, covariance, slopes) for d, p, slopes in layers]
            operations, traffic = (sum(column) for column in zip(*both, strict=True))
            arithmetic = operations / machine["gigaflops"] / 1e6
            memory = traffic / machine["gigabytes_per_second"] / 1e6
            calls = CALLS * machine["microseconds_per_call"] / 1e3
            ours = [
                line["milliseconds"]
                for line in lines
                if line["comparison"] == name and line.get("covariance") == covariance and "preset" not in line
            ]
            measured = float(np.median(ours if ours else times[covariance]))
            least = max(arithmetic, memory) + calls
            rows.append(
                [f"D = {inputs}, M = {frequencies}, {title}"]
                + [f"{value:.2f}" for value in (arithmetic, memory, calls, measured)]
                + [f"{measured / least:.1f}x"]
            )
    header = ["ms per step", "arithmetic", "memory", "calls", "measured", "over max(arithmetic, memory) + calls"]
    return (
        f"Measured in the same run: {machine['gigaflops']:.0f} GFLOP/s in a large matrix product, "
        f"{machine['gigabytes_per_second']:.0f} GB/s streaming, {machine['microseconds_per_call']:.2f} microseconds "
        f"for a call inside a compiled loop; a step of two layers makes about {CALLS}. Arithmetic counts the products "
        "with the tables of sinusoids and with U, for values, slopes where inputs are uncertain, and gradients; memory "
        "counts each table written once and read twice, and each parameter's eight visits by the optimiser, at the "
        "speed of arrays that fit into no cache: tables of one input partly do, so that their steps can be quicker.\n\n"
        + table(header, rows)
    )


def residuals() -> str:
    """Return a table of residuals over their optimum."""
    lines, rows = read("residuals"), []
    for order in (0, 1, 2):
        for name in dict.fromkeys(line["features"] for line in lines):
            chosen = [line for line in lines if line["order"] == order and line["features"] == name]
            ratios = [f"{line['ratio']:.3g}" for line in chosen]
            rows.append([f"nu = {2 * order + 1}/2, {name}", str(chosen[0]["variables"]), *ratios])
    return table(["20 frequencies", "variables", "l = 0.05", "l = 0.2", "l = 0.5"], rows)


def waiting() -> str:
    """Return a table of the seconds until the first step is done."""
    lines = read("startup")
    rows = []
    for run in RUNS:
        chosen = [line for line in lines if line["run"] == run]
        rows.append([run, *(f"{np.median([line[key] for line in chosen]):.1f}" for key in ("import", "first_step"))])
    return table(["seconds", "import", "a fit of one step"], rows)


def main() -> None:
    """Write the page and its pictures."""
    lines = [line for line in read("steps") if line.get("covariance") in (None, *COVARIANCES)]  # and not those removed
    bars(lines)
    (memory,) = read("memory")
    rounds = 1 + max(line["round"] for line in lines)
    page = (
        "# Benchmarks\n\n"
        "Made by `make bench` (about a quarter of an hour on two cores); the JSON lines beside this page hold every "
        "measurement. All workers of a comparison are alive at once and take turns, "
        f"{rounds} rounds, so that a slow minute of the machine hits all alike: look at the ratios, not at the "
        "milliseconds. Peers run as they recommend: GPyTorch in single precision with a Cholesky variational "
        "distribution and a Matern-3/2 kernel, GPflux in double precision with its architecture's squared exponential "
        "kernel, both with whitened variables and points from k-means. Everybody trains two layers with a Gaussian "
        "likelihood by Adam on the same 20,000 rows, in batches of 1,024 with one sample; a step is value, gradient "
        "and optimiser. Inputs of Overtone's layers enter through additive Matern-3/2 kernels, as in the paper, those "
        "of the peers through one kernel with a lengthscale for each.\n\n"
        + verdicts(lines)
        + "## Time of a training step\n\n![Time of a step](steps.png)\n\n"
        + comparisons(lines)
        + "## Growth with the number of frequencies\n\n"
        + growth(lines)
        + "## How far from the floor\n\n"
        + floor(lines)
        + "\n## What the features leave unexplained\n\nMean residual on [0, 1] over the Karhunen-Loeve optimum with as "
        "many variables, which nothing can beat.\n\n"
        + residuals()
        + "\n## Waiting for the first step\n\nTwo layers, additive in eight inputs, 50 frequencies, by Adam, in a new "
        "process.\n\n" + waiting() + "\n## Memory\n\nA fit on 1,000,000 rows of 8 inputs in single precision "
        f"({memory['data']:.0f} MB of data) in a new process: {memory['peak']:.0f} MB at its peak, of which the "
        f"libraries take {memory['imported']:.0f} MB before there is any data, and {memory['before_fit']:.0f} MB are "
        f"in use when the fit begins: the fit itself adds {memory['peak'] - memory['before_fit']:.0f} MB.\n"
        "\n## Budgets\n\n`overtone fit TABLE --budget 30s`, from the call to the written model with its scores "
        "(`python -m benchmarks.budgets`); at most 1.2 times the budget was aimed at.\n\n"
        + budgets.page(read("budgets"))
        + "\n## Prediction\n\nRows per second (`python -m benchmarks.prediction`).\n\n"
        + prediction.page(read("prediction"))
    )
    (RESULTS / "README.md").write_text(page)


if __name__ == "__main__":
    main()
