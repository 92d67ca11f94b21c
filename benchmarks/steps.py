"""Time of a training step, ours and the peers', side by side.

All workers of a comparison are alive at once and take turns, round after round, so that a slow minute of the machine
hits all of them alike; only ratios within a comparison mean something. One JSON line for each measurement.

    python -m benchmarks.steps [rounds]
"""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).parent / "results"
OURS, PEERS = sys.executable, ".venv-bench/bin/python"
COVARIANCES = ("block", "low-rank", "mean-field")
TURN = 0.7  # seconds that a worker's turn should take


def overtone(covariance: str, **settings) -> dict:
    return {"library": "overtone", "covariance": covariance, **settings}


def comparison(inputs: int, frequencies: int) -> list[dict]:
    """Two layers, batches of 1,024 rows: M frequencies against 2M + 1 points."""
    common = {"inputs": inputs, "batch": 1024, "frequencies": frequencies}
    ours = [overtone(covariance, **common) for covariance in COVARIANCES]
    if frequencies == 50:
        ours.append(overtone("block", preset="paper", **common))
    peers = [{"library": name, "points": 2 * frequencies + 1, **common} for name in ("gpytorch", "gpflux")]
    return ours + peers


def growth() -> list[dict]:
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
    def __init__(self, settings: dict):
        python = OURS if settings["library"] == "overtone" else PEERS
        command = [python, "-m", f"benchmarks.{settings['library']}_worker", json.dumps(settings)]
        self.settings = settings
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.first = self._answer()["first_step"]
        self.steps = 20 if settings["library"] == "overtone" else 2
        seconds = self.measure()
        self.steps = max(self.steps, int(TURN / seconds) // self.steps * self.steps)

    def _answer(self) -> dict:
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the worker of {self.settings} ended early")
        return json.loads(line)

    def measure(self) -> float:
        self.process.stdin.write(f"{self.steps}\n")
        self.process.stdin.flush()
        return self._answer()["seconds"]

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def main(rounds: int) -> None:
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / "steps.jsonl").open("w") as file:
        for name, cases in COMPARISONS.items():
            workers = [Worker(settings) for settings in cases]
            for turn in range(rounds):
                for worker in workers:
                    seconds = worker.measure()
                    line = {"comparison": name, **worker.settings, "round": turn, "milliseconds": 1e3 * seconds}
                    file.write(json.dumps({**line, "first_step": worker.first}) + "\n")
                file.flush()
            for worker in workers:
                worker.close()
            medians = {}
            for line in (json.loads(line) for line in (RESULTS / "steps.jsonl").read_text().splitlines()):
                if line["comparison"] == name:
                    key = (line["library"], line.get("covariance"), line.get("preset"), line["frequencies"])
                    medians.setdefault(key, []).append(line["milliseconds"])
            print(name, {key: f"{np.median(values):.2f}" for key, values in medians.items()}, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 9)
