"""Programs as they are before compilation, kept in a folder: a second process need not trace them again.

Tracing and lowering a deep model takes longer than reading its compiled program from JAX's cache. So the program is
exported (StableHLO) under a name that says all it depends on: the functions and static values that it was called with,
shapes, settings of JAX, versions, and the sources of this package. Where anything else is involved, such as a kernel of
the user's own, whose code may change without a sign, the name is unknown and the program is traced as usual.
"""

import dataclasses
import hashlib
import platform
import types
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar
from weakref import WeakSet

import equinox as eqx
import jax
import numpy as np
from jax import export
from jax.tree_util import Partial

from overtone.io import replace_file

PACKAGES = ("jax", "jaxlib", "equinox", "optax", "numpy")
KNOWN = {"overtone", *PACKAGES, "builtins", "collections", "functools"}
MOST = 64  # programs in memory
SETTINGS = ("jax_enable_x64", "jax_default_matmul_precision", "jax_numpy_dtype_promotion", "jax_threefry_partitionable")


class Unknown(Exception):
    """The program depends on something that has no name that lasts."""


class Kept:
    """A function of arrays and static values, whose programs are kept in `folder()`, if there is one.

    Of tuples, lists and dicts of arrays, that is: programs that return anything else are not kept. `jit` compiles a
    function of arrays.
    """

    everyone: ClassVar[WeakSet["Kept"]] = WeakSet()

    def __init__(self, function: Callable, jit: Callable, folder: Callable[[], str | None]):
        self.function, self.jit, self.folder = function, jit, folder
        self.calls: OrderedDict[Any, Callable] = OrderedDict()
        Kept.everyone.add(self)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        leaves, structure = jax.tree.flatten((arguments, named))
        arrays = [leaf for leaf in leaves if eqx.is_array(leaf)]
        static = [None if eqx.is_array(leaf) else (leaf,) for leaf in leaves]
        signature = structure, tuple(static), tuple(map(_shape, arrays)), _settings()
        if signature not in self.calls:
            self.calls[signature] = self._program(arrays, static, structure, (arguments, named))
            if len(self.calls) > MOST:
                self.calls.popitem(last=False)
        self.calls.move_to_end(signature)
        return self.calls[signature](arrays)

    def _program(self, arrays: list, static: list, structure: Any, given: Any) -> Callable:
        def flat(arrays: list) -> Any:
            rest = iter(arrays)
            leaves = [next(rest) if leaf is None else leaf[0] for leaf in static]
            arguments, named = jax.tree.unflatten(structure, leaves)
            return self.function(*arguments, **named)

        flat.__name__ = getattr(self.function, "__name__", "program")
        try:
            folder = self.folder()
            path = Path(folder) / f"{name_of((self.function, given, _settings()))}.program" if folder else None
        except Unknown:
            path = None
        if path is None or jax.device_count() > 1:
            return self.jit(flat)
        exported = _read(path)
        if exported is None:
            exported = export.export(jax.jit(flat))(arrays)
            _write(path, exported)
        call = exported.call
        renamed = lambda arrays: call(arrays)  # noqa: E731
        renamed.__name__ = flat.__name__
        # Compiled here, once: a call with arrays that such a program returned would compile it again.
        return self.jit(renamed).lower(arrays).compile()


def name_of(thing: Any) -> str:
    """A digest of all that a program depends on, the same in every process; Unknown if there is none."""
    digest = hashlib.sha256(_surroundings().encode())
    for part in _described(thing):
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()[:40]


def _described(thing: Any) -> Iterator[str]:
    if thing is None or isinstance(thing, (bool, int, float, complex, str, bytes)):
        yield f"{type(thing).__name__} {thing!r}"
    elif eqx.is_array(thing):
        yield f"array {_shape(thing)}"
    elif isinstance(thing, (type, np.dtype)):
        yield f"type {_place(thing) if isinstance(thing, type) else thing.str}"
    elif isinstance(thing, types.FunctionType):
        yield f"function {_place(thing)}"
        cells = [cell.cell_contents for cell in thing.__closure__ or ()]
        yield from _described([thing.__code__, thing.__defaults__, thing.__kwdefaults__, cells])
    elif isinstance(thing, types.CodeType):
        yield f"code {thing.co_code.hex()} {thing.co_names} {thing.co_varnames}"
        yield from _described(list(thing.co_consts))
    elif isinstance(thing, (partial, Partial)):
        yield f"partial {_place(type(thing))}"
        yield from _described([thing.func, thing.args, thing.keywords])
    elif isinstance(thing, (tuple, list)):
        yield f"{_place(type(thing))} of {len(thing)}"
        for part in thing:
            yield from _described(part)
    elif isinstance(thing, (dict, types.MappingProxyType)):
        yield f"dict {sorted(map(repr, thing))}"
        yield from _described([thing[key] for key in sorted(thing, key=repr)])
    elif isinstance(thing, (frozenset, set)):
        yield f"set {sorted(map(repr, thing))}"
    elif dataclasses.is_dataclass(thing):
        yield f"object {_place(type(thing))}"
        yield from _described({field.name: getattr(thing, field.name, None) for field in dataclasses.fields(thing)})
    else:
        raise Unknown(repr(type(thing)))


def _place(thing: Any) -> str:
    """Module and name, of a package whose version says what they mean."""
    if thing.__module__.partition(".")[0] not in KNOWN:
        raise Unknown(f"{thing.__module__}.{thing.__qualname__}")
    return f"{thing.__module__}.{thing.__qualname__}"


def _shape(array: Any) -> tuple:
    kind = jax.typeof(array)
    return str(kind), getattr(kind, "weak_type", False)


def _settings() -> tuple:
    return tuple(str(jax.config.values.get(name)) for name in SETTINGS)


@lru_cache(maxsize=1)
def _surroundings() -> str:
    """The versions of everything, this machine's kind of processor, and the sources of this package."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.name.encode() + path.read_bytes())
    versions = [f"{package} {version(package)}" for package in PACKAGES]
    return "\n".join([*versions, platform.python_version(), jax.default_backend(), digest.hexdigest()])


def _read(path: Path) -> export.Exported | None:
    """A program that was kept; one that is damaged counts for nothing."""
    try:
        return export.deserialize(bytearray(zlib.decompress(path.read_bytes())))
    except (OSError, zlib.error):
        return None


def _write(path: Path, exported: export.Exported) -> None:
    """Nothing is kept without room on the disk, or of programs that return something else than lists and tuples."""
    with suppress(OSError, ValueError):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, zlib.compress(exported.serialize(), 1))
