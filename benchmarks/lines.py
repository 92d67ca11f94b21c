"""Keep results as JSON lines, one for each case: a run that was stopped goes on where it was."""

import json
from collections.abc import Callable
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


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
