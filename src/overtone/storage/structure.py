"""Models as JSON and arrays: a file describes its own tree, and is read without running any heuristic.

A module becomes {"class": its name, "fields": ...}, an array {"array": a name}, a tuple {"tuple": ...}; numbers, words,
booleans and None stay what they are. Classes are found by name among the library's own and those that the caller
passes: nothing in a file decides which code runs. Modules are rebuilt field by field, without their constructors.
"""

import dataclasses
import os
from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib import import_module
from typing import Any

import equinox as eqx
import jax
import numpy as np

from overtone.numerics import params
from overtone.storage import files

MODULES = ("kernels", "maps", "variational", "layers", "model", "features", "likelihoods", "neighbours")

LEAST_BOUND = 1000  # of the numbers in a structure


def save(model: eqx.Module, path: str | os.PathLike) -> None:
    """Write a model, or any module made of the library's classes and your own, to a safetensors file."""
    structure, arrays = described(model)
    files.write(path, "model", arrays, {"structure": structure})


def load(path: str | os.PathLike, classes: Iterable[type] = ()) -> Any:
    """Return the model that `save` wrote; classes of your own that are part of it have to be passed."""
    arrays, about = files.read(path, "model")
    return rebuilt(about["structure"], arrays, classes)


def described(tree: Any, prefix: str = "model") -> tuple[Any, dict[str, np.ndarray]]:
    """Return the structure of a tree as JSON, and its arrays by name."""
    arrays: dict[str, np.ndarray] = {}

    def describe(thing: Any, name: str) -> Any:
        if eqx.is_array(thing) or isinstance(thing, np.generic):
            arrays[name] = np.asarray(thing)
            return {"array": name}
        if thing is None or isinstance(thing, (bool, int, float, str)):
            return thing
        if isinstance(thing, tuple | list):
            kind = "tuple" if isinstance(thing, tuple) else "list"
            return {kind: [describe(part, f"{name}[{i}]") for i, part in enumerate(thing)]}
        if isinstance(thing, eqx.Module):
            fields = {f.name: describe(getattr(thing, f.name), f"{name}.{f.name}") for f in dataclasses.fields(thing)}
            return {"class": type(thing).__name__, "fields": fields}
        raise TypeError(
            f"{name} is a {type(thing).__name__}, which a file cannot hold: only modules, arrays, numbers, words and "
            f"tuples. Make a class of it, and pass that class to load."
        )

    return describe(tree, prefix), arrays


def rebuilt(structure: Any, arrays: Mapping[str, np.ndarray], classes: Iterable[type] = ()) -> Any:
    """Return the tree that `described` took apart, as if a stranger had written it: nothing in it is believed."""
    known = {**_own_classes(), **{kind.__name__: kind for kind in classes}}
    largest = max(LEAST_BOUND, sum(array.size for array in arrays.values()))  # there is a number for each thing counted

    def build(thing: Any) -> Any:
        if isinstance(thing, int) and abs(thing) > largest:
            raise files.FileError(f"the structure of this file has a number, {thing:.3g}, beyond its arrays.")
        if not isinstance(thing, dict):
            return thing
        if "array" in thing:
            return _array(thing["array"], arrays[thing["array"]])
        if "tuple" in thing or "list" in thing:
            return tuple(map(build, thing["tuple"])) if "tuple" in thing else list(map(build, thing["list"]))
        name, fields = thing["class"], thing["fields"]
        if name not in known:
            raise files.FileError(f"there is a part of class {name}; pass that class: load(path, classes=[{name}]).")
        return _checked(_made(known[name], {field: build(value) for field, value in fields.items()}))

    try:
        return build(structure)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as error:
        if isinstance(error, files.FileError):
            raise
        raise files.FileError(f"the structure of this file is damaged ({error!r:.200}).") from None


def _array(name: str, array: np.ndarray) -> Any:
    if array.dtype.kind not in "fiub" or array.dtype.itemsize > 8 or not np.all(np.isfinite(array)):
        raise files.FileError(f"the array {name} has values that are not finite numbers.")
    return jax.device_put(array)


def _checked(module: Any) -> Any:
    """Return a module, in which inducing features and what is known of them must have the same number."""
    if hasattr(module, "features") and hasattr(module, "q"):
        blocks, _, size = params.unwrap(module.q).mean.shape
        if module.features.num_features != blocks * size:
            raise files.FileError(f"{module.features.num_features} features have a posterior of {blocks * size}.")
    return module


def _made(kind: type, values: dict[str, Any]) -> Any:
    """Return a module with these fields; those that the class has got since have their defaults."""
    fields = {f.name: f for f in dataclasses.fields(kind)}
    if unknown := set(values) - set(fields):
        raise files.FileError(f"{kind.__name__} has no field {', '.join(sorted(unknown))}; update Overtone.")
    module = object.__new__(kind)
    for name, field in fields.items():
        value = values.get(name, field.default)
        if value is dataclasses.MISSING:
            raise files.FileError(f"the field {name} of {kind.__name__} is not in this file.")
        object.__setattr__(module, name, value)
    return module


@lru_cache(maxsize=1)
def _own_classes() -> dict[str, type]:
    """Return the library's classes by their names, which belong to the format of files."""
    modules = [params, *(import_module(f"overtone.gp.{name}") for name in MODULES)]
    classes = [c for module in modules for c in vars(module).values() if isinstance(c, type)]
    return {c.__name__: c for c in classes if issubclass(c, eqx.Module) and c.__module__.startswith("overtone.")}
