"""What happens in training, as JSON lines: one for each turn of the loop, appended to a file and never changed."""

import json
import math
import os
import warnings
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter

from overtone.inference.callbacks import Callback
from overtone.inference.processes import is_first


class LogWarning(UserWarning):
    """A line of the log could not be written."""


class Log(Callback):
    """Appends the time, the stage, the step, the seconds so far, the mean objective of the turn and the last score.

    A file that cannot be written is an error when training starts, and a warning later.
    """

    def __init__(self, path: str | os.PathLike, stage: str = ""):
        self.path, self.stage = Path(path), stage

    def start(self, training):
        try:
            self._append("")
        except OSError as error:
            raise OSError(error.errno, f"{self.path} cannot be written: {error.strerror}") from None

    def after_turn(self, training):
        objective = -float(training.losses[-1].mean())
        line = {
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "stage": self.stage,
            "step": training.step,
            "planned": training.steps,
            "seconds": round(perf_counter() - training.began, 3),
            "objective": objective if math.isfinite(objective) else None,  # JSON has no NaN
            "score": training.scores[-1][1] if training.scores else None,
        }
        try:
            self._append(json.dumps(line, allow_nan=False) + "\n")
        except OSError as error:  # a full disk, say: training is worth more than its log
            reason = f"{self.path} cannot be written: {error.strerror}; training goes on without this line."
            warnings.warn(reason, LogWarning, stacklevel=2)

    def _append(self, text: str) -> None:
        if is_first():
            with self.path.open("a", encoding="utf-8") as file:
                file.write(text)
