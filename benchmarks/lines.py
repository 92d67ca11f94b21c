"""Keep results as JSON lines, one for each case: a run that was stopped goes on where it was."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


def completed(path: Path, cases: Iterable[tuple], names: tuple[str, ...], measure: Callable[..., dict]) -> list[dict]:
    """Return all results of a file, after adding measure(*case) of each case that no line of it names yet."""
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    done = {tuple(line[name] for name in names) for line in lines}
    for case in cases:
        if case not in done:
            lines.append(measure(*case))
            with path.open("a") as file:
                file.write(json.dumps(lines[-1]) + "\n")
            print(lines[-1], flush=True)
    return lines


def resumed(name: str, num: int, compute: Callable[[int], dict]) -> list[dict]:
    """Return the results of cases 0, ..., num - 1, after computing those that are not in results/NAME.jsonl yet."""
    path = RESULTS / f"{name}.jsonl"
    done = len(path.read_text().splitlines()) if path.exists() else 0
    for case in range(done, num):
        result = compute(case)
        with path.open("a") as file:
            file.write(json.dumps(result) + "\n")
        print(result, flush=True)
    return [json.loads(line) for line in path.read_text().splitlines()]
