"""Read thousands of damaged and crafted model files: one sentence each, quickly, in little memory, or the same model.

Every second file is one of ours with random bytes changed, cut off or added; the others were changed in what they say
about their arrays, or in the arrays, and have a digest that is right. Writes counts to results/mutated_files.json.

    python -m benchmarks.mutated_files [files]
"""

import json
import resource
import sys
import tempfile
from collections import Counter
from copy import deepcopy
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.lines import RESULTS
from overtone.sklearn import load
from overtone.storage import files

FILES, ORIGINAL = 10_000, Path(__file__).parent.parent / "tests" / "data" / "estimator-6.safetensors"
MAX_SECONDS, MAX_MEGABYTES = 1.0, 200
ODD: list[Any] = [None, -1, 0, 10**6, 10**9, 10**30, 1e308, "", "x" * 10_000, [], {}, True, [[]] * 50, {"array": "no"}]


def scattered(rng: np.random.Generator, contents: bytes) -> bytes:
    """Return the bytes with a few of them changed, or without their end, or with more."""
    data = bytearray(contents)
    for _ in range(rng.integers(1, 5)):
        data[rng.integers(len(data))] = rng.integers(256)
    cut = rng.integers(len(data)) if rng.random() < 0.2 else len(data)
    return bytes(data[:cut]) + (bytes(rng.integers(0, 256, 20, np.uint8)) if rng.random() < 0.1 else b"")


def places(thing: Any) -> list[tuple[Any, Any]]:
    """Return all (container, key) pairs of a JSON tree."""
    keys = thing.keys() if isinstance(thing, dict) else range(len(thing)) if isinstance(thing, list) else ()
    return [pair for key in keys for pair in [(thing, key), *places(thing[key])]]


def nested(depth: int) -> Any:
    """Return lists in lists, as deep as JSON can still be written."""
    return {"list": [nested(depth - 1)]} if depth else 0


def crafted(rng: np.random.Generator, arrays: dict, about: dict) -> tuple[dict, dict]:
    """Return arrays and words with a few of them changed."""
    arrays, about = dict(arrays), json.loads(json.dumps(about))
    for _ in range(rng.integers(1, 3)):
        if rng.random() < 0.2:
            name = rng.choice(sorted(arrays))
            change = rng.integers(4)
            array = arrays[name].astype(float)
            arrays[name] = [array.ravel()[:-1], array * np.nan, np.zeros((3, 3), np.int64), array[None]][change]
            continue
        all_places = places(about)
        container, key = all_places[rng.integers(len(all_places))]
        if rng.random() < 0.2 and isinstance(container, dict):
            del container[key]
        else:
            container[key] = deepcopy(ODD[rng.integers(len(ODD))])  # a second change may be inside it
    if rng.random() < 0.02:
        about["structure"] = nested(int(rng.integers(100, 300)))
    return arrays, about


def outcome(path: Path, X: np.ndarray, expected: np.ndarray, is_crafted: bool) -> str:
    """Return what became of reading a file: refused, the same, other numbers, or what should not happen."""
    began = perf_counter()
    try:
        model = load(path)
    except ValueError as error:
        if "\n" in str(error):
            return "several lines"
        return "refused" if perf_counter() - began < MAX_SECONDS else "slowly refused"
    except Exception as error:
        return f"traceback: {type(error).__name__}: {error}"[:200]
    if is_crafted:
        return "read"
    return "the same" if np.array_equal(model.predict(X), expected) else "another model"


def main(num: int = FILES) -> None:
    contents = ORIGINAL.read_bytes()
    arrays, about = files.read(ORIGINAL, "estimator")
    model = load(ORIGINAL)
    X = np.random.default_rng(0).random((5, model.n_features_in_))
    expected, counts = model.predict(X), Counter()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        for seed in range(num):
            rng = np.random.default_rng(seed)
            if is_crafted := bool(seed % 2):
                files.write(path, "estimator", *crafted(rng, arrays, about))
            else:
                path.write_bytes(scattered(rng, contents))
            found = outcome(path, X, expected, is_crafted)
            counts["crafted, " * is_crafted + found] += 1
            if found not in ("refused", "the same", "read"):
                print(seed, found, flush=True)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    result = {"files": num, **counts, "more memory, MB": round(grown)}
    print(result)
    if num == FILES:
        (RESULTS / "mutated_files.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
