"""Run an experiment: measure every case that has no record yet, and draw its figure."""

import subprocess
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Any

from overtone.experiments import EXPERIMENTS
from overtone.experiments.records import Records
from overtone.version import __version__

RECORDS, QUICK_RECORDS = Path("results/paper"), Path("overtone-quick")


def experiment(name: str) -> Any:
    """Return the module of an experiment."""
    if name not in EXPERIMENTS:
        raise ValueError(f"there is no experiment {name!r}; there are {', '.join(EXPERIMENTS)}.")
    return import_module(f"overtone.experiments.{name.replace('-', '_')}")


def listing() -> str:
    """Return a line for each experiment."""
    lines = [f"{name:<12} {each.hours:>4.1f} h  {each.shows}" for name, each in EXPERIMENTS.items()]
    total = sum(each.hours for each in EXPERIMENTS.values())
    return "\n".join(
        [*lines, f"{'together':<12} {total:>4.1f} h  of one core; two processes share the work of a name."]
    )


def run(name: str, *, quick: bool, seeds: int | None, data: Path | None, folder: Path) -> int:
    """Measure the cases of an experiment that have no record, draw its figure, and return how many were measured."""
    module, records, measured = experiment(name), Records(folder / f"{name}.jsonl"), 0
    folder.mkdir(parents=True, exist_ok=True)
    cases = [
        {"experiment": name, **case, **({"quick": True} if quick else {})} for case in module.cases(quick, seeds, data)
    ]
    for number, case in enumerate(cases, 1):
        with records.claim(case) as ours:
            if not ours:
                continue
            began = perf_counter()
            record = {**case, **module.measure(case, data), "version": version()}
            record["total_seconds"] = round(perf_counter() - began, 2)
            records.append(record)
            measured += 1
        print(f"{number} of {len(cases)}: {describe(case)}: {outcome(record)}", flush=True)
    if all(records.has(case) for case in cases):
        module.figure(records.read(), folder / f"{name}.png")
    return measured


def describe(case: dict[str, Any]) -> str:
    """Return the fields of a case in a line."""
    return ", ".join(f"{name} {value}" for name, value in case.items() if name not in ("experiment", "quick"))


def outcome(record: dict[str, Any]) -> str:
    """Return the main figures of a record in a few words."""
    shown = {name: record[name] for name in ("log_density", "rmse", "milliseconds") if name in record}
    figures = [f"{name} {value:.3f}" for name, value in shown.items()]
    return ", ".join([*figures, f"{record['total_seconds']:.0f} s"])


@lru_cache(maxsize=1)
def version() -> str:
    """Return the version of the code, with the commit in a clone."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    try:
        commit = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return __version__
    return f"{__version__}+{commit}"
