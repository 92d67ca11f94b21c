"""Time a training step, ours and the peers', side by side.

All workers of a comparison are alive at once and take turns, round after round, so that a slow minute of the machine
hits all of them alike; only ratios within a comparison mean something. Writes one JSON line for each measurement. A run
that was stopped goes on with the comparisons that are not complete; delete results/steps.jsonl to measure all anew.

    python -m benchmarks.steps [rounds]
"""

import json
import subprocess
import sys
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
OURS, PEERS = sys.executable, ".venv-bench/bin/python"
COVARIANCES = ("block", "mean-field")
TURN_SECONDS = 0.7  # that a worker's turn should take


def overtone(covariance: str, **settings) -> dict:
    """Return the settings of one of our workers."""
    return {"library": "overtone", "covariance": covariance, **settings}


def comparison(inputs: int, frequencies: int) -> list[dict]:
    """Return the settings of two layers and batches of 1,024 rows: M frequencies against 2M + 1 points."""
    common = {"inputs": inputs, "batch": 1024, "frequencies": frequencies}
    ours = [overtone(covariance, **common) for covariance in COVARIANCES]
    if frequencies == 50:
        ours.append(overtone("block", preset="paper", **common))
    peers = [{"library": name, "points": 2 * frequencies + 1, **common} for name in ("gpytorch", "gpflux")]
    return ours + peers


def growth() -> list[dict]:
    """Return settings with more and more frequencies."""
    return [
        overtone(covariance, inputs=1, batch=8192, frequencies=frequencies)
        for covariance in COVARIANCES
        for frequencies in (50, 100, 200, 500)
    ]


COMPARISONS = {
    "D1-M50": comparison(1, 50),
    "D8-M50": comparison(8, 50),
    "D1-M500": comparison(1, 500),
    "growth": growth(),
}


class Worker:
    """A process that trains when it is told to, and says how long a step took."""

    def __init__(self, settings: dict):
        python = OURS if settings["library"] == "overtone" else PEERS
        command = [python, "-m", f"benchmarks.{settings['library']}_worker", json.dumps(settings)]
        self.settings = settings
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.first = self._answer()["first_step"]
        self.steps = 20 if settings["library"] == "overtone" else 2
        self.measure()  # which may compile a program for so many steps
        self.steps = max(self.steps, int(TURN_SECONDS / self.measure()) // self.steps * self.steps)

    def _answer(self) -> dict:
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the worker of {self.settings} ended early")
        return json.loads(line)

    def measure(self) -> float:
        """Return the seconds of a step, the mean over one turn."""
        self.process.stdin.write(f"{self.steps}\n")
        self.process.stdin.flush()
        return self._answer()["seconds"]

    def close(self) -> None:
        """End the process."""
        self.process.stdin.close()
        self.process.wait()


def complete(path: Path, rounds: int) -> list[dict]:
    """Return the lines of all comparisons that were measured to the end."""
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    counts = {name: sum(line["comparison"] == name for line in lines) for name in COMPARISONS}
    whole = {name for name, cases in COMPARISONS.items() if counts[name] == rounds * len(cases)}
    return [line for line in lines if line["comparison"] in whole]


def measure(name: str, rounds: int, file) -> None:
    """Measure one comparison, round after round, and write a line for each worker's turn."""
    workers = [Worker(settings) for settings in COMPARISONS[name]]
    for turn in range(rounds):
        for worker in workers:
            line = {"comparison": name, **worker.settings, "round": turn, "milliseconds": 1e3 * worker.measure()}
            file.write(json.dumps({**line, "first_step": worker.first}) + "\n")
        file.flush()
        print(f"{name}: round {turn + 1} of {rounds}", flush=True)
    for worker in workers:
        worker.close()


def main(rounds: int) -> None:
    """Measure the comparisons that are not complete."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / "steps.jsonl"
    lines = complete(path, rounds)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = {line["comparison"] for line in lines}
    with path.open("a") as file:
        for name in COMPARISONS:
            if name not in done:
                measure(name, rounds, file)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
