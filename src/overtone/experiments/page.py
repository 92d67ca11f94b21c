"""docs/paper.md and the figures, from records alone: blocks between two comments are made, all else is prose."""

import re
from pathlib import Path

from overtone.experiments import EXPERIMENTS
from overtone.experiments.claims import CLAIMS, NOT_RUN, verdict
from overtone.experiments.records import Records
from overtone.experiments.running import experiment

PAGE = Path("docs/paper.md")
BLOCK = re.compile(r"(<!-- made: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def draw(folder: Path, name: str | None = None) -> None:
    """Draw the figures of all experiments that have records, or of one."""
    for each in EXPERIMENTS if name is None else (name,):
        if records := read(folder, each):
            experiment(each).figure(records, folder / f"{each}.png")


def read(folder: Path, name: str) -> list[dict]:
    """Return the records of an experiment, without those of a quick trial unless there are no others."""
    records = Records(folder / f"{name}.jsonl").read()
    return [each for each in records if not each.get("quick")] or records


def claims_table(folder: Path) -> str:
    """Return all claims with our figures and verdicts."""
    lines = ["| the paper's claim | where | our figure | verdict |", "|---|---|---|---|"]
    for claim in CLAIMS:
        records = read(folder, claim.experiment)
        figure, share = (NOT_RUN, None) if _is_trial(records) else claim.ask(records)
        planned = len(experiment(claim.experiment).cases(False, None, Path()))
        part = f" so far, by {len(records)} of {planned} records" if len(records) < planned else ""
        said = NOT_RUN if figure == NOT_RUN else f"**{verdict(share)}**{part}"
        lines.append(f"| [{claim.text}](#{claim.experiment}) | {claim.where} | {figure} | {said} |")
    return "\n".join(lines)


def budget(folder: Path) -> str:
    """Return how long each experiment was expected to take, and how long its records took."""
    lines = [
        "| experiment | expected hours of one core | hours that its records took | records |",
        "|---|---:|---:|---:|",
    ]
    for name, about in EXPERIMENTS.items():
        records = read(folder, name)
        hours = sum(each["total_seconds"] for each in records) / 3600
        lines.append(f"| {name} | {about.hours:.1f} | {hours:.2f} | {len(records)} |")
    return "\n".join(lines)


def block(folder: Path, name: str) -> str:
    """Return what stands between the comments of one block."""
    if name in ("claims", "budget"):
        return claims_table(folder) if name == "claims" else budget(folder)
    if not (records := read(folder, name)):
        return f"{NOT_RUN.capitalize()}: `overtone reproduce {name}` makes the records."
    return f"![{name}](../results/paper/{name}.png)\n\n{experiment(name).tables(records)}"


def write_page(folder: Path, page: Path = PAGE) -> Path:
    """Fill the blocks of the page from records, and return where it is."""
    if not page.exists():
        raise ValueError(f"{page} does not exist; run this in a clone of the project.")
    text = BLOCK.sub(lambda found: f"{found[1]}{block(folder, found[2])}\n{found[3]}", page.read_text())
    page.write_text(text)
    return page


def _is_trial(records: list[dict]) -> bool:
    """Return whether there is nothing to judge by: no records, or those of a quick trial."""
    return not records or bool(records[0].get("quick"))
