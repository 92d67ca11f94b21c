"""Tables and figures of records: means over seeds, with standard errors."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Record = dict[str, Any]
COLOURS = {
    "ID-DGP, paper": "#1f4e9c",
    "ID-DGP, features": "#5aa0d8",
    "ID-DGP, ours": "#c8102e",
    "DGP": "#e08a1e",
    "VFF": "#2c8a57",
    "SVGP": "#777777",
}


def select(records: Iterable[Record], **fields: Any) -> list[Record]:
    """Return the records with these fields."""
    return [each for each in records if all(each.get(name) == value for name, value in fields.items())]


def values(records: Iterable[Record], name: str) -> np.ndarray:
    """Return one figure of all records that have it."""
    return np.array([each[name] for each in records if each.get(name) is not None], float)


def mean(records: Iterable[Record], name: str) -> float:
    """Return its mean, or NaN if there is none."""
    found = values(records, name)
    return float(found.mean()) if len(found) else float("nan")


def standard_error(records: Iterable[Record], name: str) -> float:
    """Return the standard error of that mean; that of one record is NaN."""
    found = values(records, name)
    return float(found.std(ddof=1) / len(found) ** 0.5) if len(found) > 1 else float("nan")


def groups(records: Iterable[Record], *names: str) -> dict[tuple, list[Record]]:
    """Return the records that agree in the named fields, in the order in which they appear."""
    found: dict[tuple, list[Record]] = {}
    for each in records:
        found.setdefault(tuple(each.get(name) for name in names), []).append(each)
    return found


def paired_gain(better: Sequence[Record], worse: Sequence[Record], name: str) -> tuple[float, float]:
    """Return the mean difference of a figure over the seeds that both have, and its standard error."""
    other = {each["seed"]: each[name] for each in worse}
    gains = np.array([each[name] - other[each["seed"]] for each in better if each["seed"] in other])
    error = gains.std(ddof=1) / len(gains) ** 0.5 if len(gains) > 1 else float("nan")
    return (float(gains.mean()) if len(gains) else float("nan")), float(error)


def with_error(records: Sequence[Record], name: str, digits: int = 3) -> str:
    """Return a mean and its standard error as text."""
    error = standard_error(records, name)
    text = f"{mean(records, name):.{digits}f}"
    return text if np.isnan(error) else f"{text} ± {error:.{digits}f}"


def table(records: Sequence[Record], *names: str) -> str:
    """Return the figures of all methods as a Markdown table, a row for each combination of the named fields."""
    measured = ["log density", "RMSE", "CRPS", "inside 50 / 80 / 95 %", "inducing", "variables", "steps", "s", "seeds"]
    head = [*(name.replace("_", " ") for name in names), *measured]
    rows = [head, ["---"] * len(names) + ["---:"] * len(measured)]
    for key, group in groups(records, *names).items():
        covered = " / ".join(f"{100 * mean(group, f'coverage_{level}'):.0f}" for level in (50, 80, 95))
        inducing, variables = group[0].get("inducing_inputs", ""), group[0].get("inducing_variables", ())
        row = [*map(str, key), with_error(group, "log_density"), with_error(group, "rmse")]
        row += [f"{mean(group, 'crps'):.3f}", covered, str(inducing), " + ".join(map(str, variables))]
        row += [f"{np.nan_to_num(mean(group, name)):.0f}" for name in ("steps", "seconds")]
        rows.append([*row, str(len({each.get("seed") for each in group}))])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def compact(record_list: Sequence[Record], across: str, rows: str, name: str, digits: int = 3) -> str:
    """Return one figure as a Markdown table: a column for each value of one field, a row for each of another."""
    columns = [key for (key,) in groups(record_list, across)]
    lines = [[rows, *map(str, columns)], ["---", *["---:"] * len(columns)]]
    for (row,), group in groups(record_list, rows).items():
        cells = [with_error(chosen, name, digits) for c in columns if (chosen := select(group, **{across: c})) or True]
        lines.append([str(row), *("" if cell.startswith("nan") else cell for cell in cells)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def axes(rows: int, columns: int, size: tuple[float, float] = (3.6, 2.8), **settings: Any) -> tuple[Any, Any]:
    """Return a figure without a screen, and its axes as an array."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    fig = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
    FigureCanvasAgg(fig)
    return fig, fig.subplots(rows, columns, squeeze=False, **settings)


def save(fig: Any, path: Path) -> None:
    """Write a figure, all of it or nothing."""
    unfinished = path.with_name(f".{path.name}")
    fig.savefig(unfinished, dpi=110, format="png")
    unfinished.replace(path)


def colour(method: str) -> str | None:
    """Return the colour of a method, whatever its name says of its settings."""
    return next((c for name, c in COLOURS.items() if method.startswith(name)), None)


def draw_bars(ax: Any, records: Sequence[Record], name: str, label: str) -> None:
    """Draw the mean of a figure with its standard error, a row for each method."""
    found = list(groups(records, "method").items())[::-1]
    for row, ((method,), group) in enumerate(found):
        error = np.nan_to_num(standard_error(group, name))
        ax.errorbar(mean(group, name), row, xerr=error, fmt="o", color=colour(method), capsize=3)
    ax.set(yticks=range(len(found)), yticklabels=[method for (method,), _ in found], xlabel=label)
    ax.grid(axis="x", alpha=0.3)


def save_bars(records: Sequence[Record], path: Path, size: tuple[float, float]) -> None:
    """Write a figure of log densities and RMSE, a column for each table of data."""
    tables = groups(records, "data")
    fig, ax = axes(2, len(tables), size, sharey=True)
    for column, ((data,), group) in zip(ax.T, tables.items(), strict=True):
        draw_bars(column[0], group, "log_density", "log density")
        draw_bars(column[1], group, "rmse", "RMSE")
        column[0].set_title(data)
    save(fig, path)


def draw_band(ax: Any, x: Sequence[float], middle: Sequence[float], std: Sequence[float], method: str = "") -> None:
    """Draw a mean with one to three standard deviations."""
    middle, std = np.asarray(middle), np.asarray(std)  # type: ignore[assignment]
    for k in (3, 2, 1):
        ax.fill_between(x, middle - k * std, middle + k * std, color="#4a7fc1", alpha=0.22, lw=0)  # type: ignore[operator]
    ax.plot(x, middle, color=colour(method) or "#1f4e9c", lw=1.2)
