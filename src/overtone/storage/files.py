"""Files that hold arrays and what is known about them, and that can be trusted.

One safetensors file: arrays by name, everything else as JSON in its header, together with a format number and a digest
of all of it. What was damaged, cut off, or written by something else is refused with one sentence. Nothing in a file
is ever executed. A file appears under its name only once it is complete and on the disk: whatever goes wrong before
leaves the old one as it was.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from threading import get_ident
from typing import Any

import equinox as eqx
import jax
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from overtone.version import __version__

FORMAT = 6
MARK = "overtone"  # the entry of the header that makes it one of ours


class FileError(ValueError):
    """A file that cannot be used; the message is one sentence that says why."""


def write(path: str | os.PathLike, kind: str, arrays: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> None:
    """Save arrays, and whatever JSON can express about them, as a file of some kind (such as "model")."""
    arrays = {name: np.array(array, order="C") for name, array in arrays.items()}
    header = {MARK: kind, "format": str(FORMAT), "version": __version__, "about": json.dumps(about, sort_keys=True)}
    replace_file(path, save(arrays, {**header, "digest": _digest(header, arrays)}))


def read(path: str | os.PathLike, kind: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the arrays of a file of that kind and what is known about them, or raise a FileError."""
    path = Path(path)
    if not path.is_file():
        raise FileError(f"{path}: there is no such file.")
    try:
        with safe_open(path, framework="numpy") as file:
            header = dict(file.metadata() or {})
            _check_origin(path, kind, header)
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, not a dict
    except (SafetensorError, OSError, UnicodeDecodeError, TypeError, KeyError, AttributeError) as error:
        raise FileError(f"{path}: not a safetensors file, or a damaged one ({error}).") from None
    if header.pop("digest", "") != _digest(header, arrays):
        raise FileError(f"{path}: this file is damaged: its contents do not match their digest.")
    try:
        return arrays, dict(json.loads(header["about"]))
    except (KeyError, ValueError, TypeError, RecursionError):
        raise FileError(f"{path}: what this file says about its arrays cannot be read.") from None


def _check_origin(path: Path, kind: str, header: dict[str, str]) -> None:
    if MARK not in header:
        raise FileError(f"{path}: this safetensors file was not written by Overtone.")
    number = header.get("format", "")
    if number != str(FORMAT):
        advice = "update Overtone" if number.isdecimal() and int(number) > FORMAT else "fit the model again"
        raise FileError(
            f"{path}: this file has format {number[:20]!r}, written by Overtone {header.get('version', '?')[:20]}; "
            f"this is {__version__}, which knows format {FORMAT}: {advice}."
        )
    if header[MARK] != kind:
        raise FileError(f"{path}: it holds a {header[MARK][:20]}, not {'an' if kind[0] in 'aeiou' else 'a'} {kind}.")


def _digest(header: Mapping[str, str], arrays: Mapping[str, np.ndarray]) -> str:
    """Return a digest of every name, type, shape, number and word in the file."""
    shapes = {name: [str(a.dtype), list(a.shape)] for name, a in arrays.items()}
    digest = hashlib.sha256(json.dumps([header, shapes], sort_keys=True).encode())
    for name in sorted(arrays):
        digest.update(arrays[name].tobytes())
    return digest.hexdigest()


def replace_file(path: str | os.PathLike, contents: bytes) -> None:
    """Replace a file in one step, once the new contents are on the disk."""
    path = Path(path)
    new = path.with_name(f".{path.name}.{os.getpid()}-{get_ident()}.new")
    try:
        with new.open("wb") as file:
            file.write(contents)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    except OSError as error:
        raise OSError(error.errno, f"{path} cannot be written: {error.strerror}") from None
    finally:
        new.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)  # whose new entry has to reach the disk, too
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def leaves(tree: Any, prefix: str) -> dict[str, np.ndarray]:
    """Return the arrays of a tree by their paths."""
    pairs, _ = jax.tree_util.tree_flatten_with_path(eqx.filter(tree, eqx.is_array))
    return {prefix + jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in pairs}


def restored(tree: Any, arrays: Mapping[str, np.ndarray], prefix: str) -> Any:
    """Return a tree of the same structure with the arrays that belong at its paths."""
    old, (dynamic, static) = leaves(tree, prefix), eqx.partition(tree, eqx.is_array)
    for name, leaf in old.items():
        if name not in arrays or arrays[name].shape != leaf.shape:
            raise FileError(f"the array {name} of shape {leaf.shape} is not in this file.")
    new = [jax.device_put(arrays[name]) for name in old]
    return eqx.combine(jax.tree.unflatten(jax.tree.structure(dynamic), new), static)
