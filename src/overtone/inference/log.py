"""What happens in training, as JSON lines: one for each turn of the loop, appended to a file and never changed."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter

from overtone.inference.callbacks import Callback
from overtone.inference.processes import is_first


class Log(Callback):
    """Appends the time, the stage, the step, the seconds so far, the mean objective of the turn and the last score."""

    def __init__(self, path: str | os.PathLike, stage: str = ""):
        self.path, self.stage = Path(path), stage

    def after_turn(self, training):
        if not is_first():
            return
        line = {
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "stage": self.stage,
            "step": training.step,
            "planned": training.steps,
            "seconds": round(perf_counter() - training.began, 3),
            "objective": None if training.diverged else -float(training.losses[-1].mean()),
            "score": training.scores[-1][1] if training.scores else None,
        }
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")
