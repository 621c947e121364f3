"""A stable hash of Python values and functions: it is equal in every process.

Caches on disk use it in their keys. The hash of a function covers its bytecode, constants, defaults, closure, and the
global variables that its code reads. For a function, class or module of an installed package, it covers only the name
and the version of the package. `UnstableValueError` names a value without a stable hash, such as an object of an
unknown class, or a function that reads the clock.
"""

import builtins
import dataclasses
import dis
import functools
import hashlib
import importlib.metadata
import importlib.util
import inspect
import reprlib
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path, PurePath
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from forebay.core.source import AbstractSource
from forebay.core.spec import format_nbytes
from forebay.errors import SourceError
from forebay.pipeline.impure_reads import find_impure_read

__all__ = ["UnstableValueError", "identify_if_known", "stable_digest"]

MAX_ARRAY_NBYTES = 256 << 20  # bytes of the largest array to hash, which takes about half a second
_PLAIN = (type(None), type(...), bool, int, float, complex, str, bytes)
_ARRAYS = (np.ndarray, np.memmap, np.recarray)  # other array classes may have more than values, such as a mask
_CONTAINERS = (list, tuple, dict, set, frozenset, str, bytes, np.ndarray)
_CLASS_INTERNALS = frozenset(
    (
        *("__module__", "__dict__", "__weakref__", "__doc__", "__annotations__", "__firstlineno__", "__slots__"),
        *("__dataclass_fields__", "__dataclass_params__", "__match_args__", "__annotate__", "__annotate_func__"),
        *("__annotations_cache__", "__static_attributes__", "__abstractmethods__", "_abc_impl", "__hash__"),
    )
)
_DATACLASS_METHODS = frozenset(
    ("__init__", "__repr__", "__eq__", "__lt__", "__le__", "__gt__", "__ge__", "__replace__")
)


class UnstableValueError(Exception):
    """A value has no hash that is equal in every process.

    The message names the value.
    """


def stable_digest(value: Any, name: str) -> str:
    """Return the SHA-256 of a value in hexadecimal digits.

    The message of an UnstableValueError calls the value `name`.

    >>> stable_digest((1, "a", lambda x: x + 1), "value") == stable_digest((1, "a", lambda x: x + 1), "value")
    True
    >>> stable_digest(lambda x: x + 1, "value") == stable_digest(lambda x: x + 2, "value")
    False
    """
    digest = _Digest()
    try:
        digest.add(value, name)
    except RecursionError:
        raise UnstableValueError(f"{name} (it contains itself, or is nested too deeply)") from None
    return digest.hexdigest()


def identify_if_known(source: AbstractSource) -> str:
    """Return a hash of a source's rows; empty if they have no stable hash.

    If the hash is empty, only the `version` that the user passed identifies the rows.
    """
    try:
        return "" if source.identify is None else stable_digest(source.identify(), "the source")
    except (UnstableValueError, SourceError):
        return ""


class _Digest:
    """Feeds values to a hash.

    It writes the type before each value, the length before each string, and the number of items before those of a list,
    tuple or dict. So different values never give the same bytes.
    """

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        # id of each added object -> its number, and the object. Without this, a function that refers to itself would
        # be added without end.
        self._seen: dict[int, tuple[int, Any]] = {}

    def hexdigest(self) -> str:
        return self._hash.hexdigest()

    def add(self, value: Any, name: str) -> None:
        kind = type(value)
        if kind is int:
            self._write("int", f"{value:x}")  # hexadecimal, because Python refuses decimal texts of very long numbers
        elif kind in _PLAIN:
            self._write(kind.__name__, repr(value))
        elif kind in (tuple, list):
            self._add_items(kind.__name__, value, name)
        elif kind in (set, frozenset):
            self._write(kind.__name__, *sorted(stable_digest(item, name) for item in value))
        elif kind is dict:
            self._add_items("dict", [part for item in value.items() for part in item], name)
        elif kind in (slice, range):
            self._write(kind.__name__, repr(value))
        elif kind in _ARRAYS or isinstance(value, np.generic):
            self._add_array(np.asarray(value), name)
        elif isinstance(value, np.dtype | PurePath):
            self._write(kind.__name__, str(value))
        elif isinstance(value, CodeType):
            self._add_code(value, name)
        else:
            self._add_object(value, name)

    def _add_object(self, value: Any, name: str) -> None:
        if id(value) in self._seen:
            self._write("seen", str(self._seen[id(value)][0]))
            return
        self._seen[id(value)] = (len(self._seen), value)  # keeps the value alive, so that no other object gets its id
        if _is_exported(value):
            module = getattr(value, "__module__", None) or "numpy"  # in older versions of NumPy, ufuncs have no module
            exported = value.__name__ if isinstance(value, np.ufunc) else value.__qualname__
            self._write("exported", module, exported, _package_version(module, name))
        elif isinstance(value, FunctionType):
            self._add_function(value, name)
        elif isinstance(value, functools.partial):
            self._add_items("partial", [value.func, value.args, value.keywords], name)
        elif isinstance(value, ModuleType) and _is_installed(value.__name__):
            self._write("module", value.__name__, _package_version(value.__name__, name))
        elif isinstance(value, Enum):
            self._write("enum", type(value).__qualname__, value.name)
            self.add(value.value, name)
        elif isinstance(value, staticmethod | classmethod) or hasattr(type(value), "cache_info"):
            self._write(type(value).__name__)
            self.add(value.__wrapped__, name)
        elif isinstance(value, property):
            self._add_items("property", [value.fget, value.fset, value.fdel], name)
        elif isinstance(value, MethodType):
            self._add_items("method", [value.__func__, value.__self__], name)
        elif isinstance(value, type):
            self._add_class(value, name)
        elif dataclasses.is_dataclass(value) and not isinstance(value, _CONTAINERS):
            self.add(type(value), name)
            fields = [field.name for field in dataclasses.fields(value)]
            others = [attribute for attribute in getattr(value, "__dict__", {}) if attribute not in fields]
            for attribute in (*fields, *others):
                self._write(attribute)
                self.add(getattr(value, attribute, None), f"{name}.{attribute}")
        elif isinstance(value, Mapping) and _is_installed(type(value).__module__):
            self._add_items(type(value).__qualname__, [part for item in value.items() for part in item], name)
            self.add(getattr(value, "default_factory", None), name)
        else:
            raise UnstableValueError(f"{name} ({_describe(value)})")

    def _add_function(self, function: FunctionType, name: str) -> None:
        name = f"{name}, {function.__qualname__}()" if name else f"{function.__qualname__}()"
        if (impure_read := find_impure_read(function)) is not None:
            raise UnstableValueError(f"{name} ({impure_read})")
        self._write("function")
        self._add_code(function.__code__, name)
        self._add_items("defaults", [function.__defaults__, function.__kwdefaults__], f"{name}: a default")
        for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                value = cell.cell_contents
            except ValueError:  # the variable has no value yet
                self._write("empty", variable)
                continue
            self.add(value, f"{name}: the variable {variable!r}")
        for path in _global_paths(function.__code__):
            self._add_global(function.__globals__, path, name)
        for module in _imported_modules(function.__code__, function.__globals__.get("__package__")):
            if not _is_installed(module):
                raise UnstableValueError(f"{name} (it imports {module!r}, which is not an installed package)")
            self._write("import", module, _package_version(module, name))

    def _add_global(self, variables: dict[str, Any], path: tuple[str, ...], name: str) -> None:
        """Add the global variable that a path begins with.

        If it is a module that is not installed, add only the attribute that the code reads from it.
        """
        variable, attributes = path[0], list(path[1:])
        self._write("global", variable)
        if variable not in variables:
            self._write("builtin" if hasattr(builtins, variable) else "undefined")
            return
        value, label = variables[variable], variable
        while isinstance(value, ModuleType) and not _is_installed(value.__name__) and attributes:
            label = f"{label}.{attributes[0]}"
            value = getattr(value, attributes.pop(0), None)
        self.add(value, f"{name}: the global variable {label!r}")

    def _add_code(self, code: CodeType, name: str) -> None:
        flags = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        self._write("code", str(sys.version_info[:2]), str(flags), code.co_code.hex(), code.co_exceptiontable.hex())
        self._write("names", *code.co_names, *code.co_varnames, *code.co_freevars, *code.co_cellvars)
        self._add_items("constants", code.co_consts, name)

    def _add_class(self, cls: type[Any], name: str) -> None:
        self._write("class", cls.__qualname__)
        self._add_items("bases", (*cls.__bases__, type(cls)), name)
        for member, value in vars(cls).items():
            if (
                member not in _CLASS_INTERNALS
                and not (member in _DATACLASS_METHODS and _is_generated(value))
                and not inspect.ismemberdescriptor(value)
                and not inspect.isgetsetdescriptor(value)
            ):
                self._write(member)
                self.add(value, f"{name}.{member}")

    def _add_array(self, array: np.ndarray[Any, Any], name: str) -> None:
        if array.dtype.hasobject:
            raise UnstableValueError(f"{name} (an array of Python objects)")
        if array.nbytes > MAX_ARRAY_NBYTES:
            limit = format_nbytes(MAX_ARRAY_NBYTES)
            raise UnstableValueError(f"{name} (an array of {format_nbytes(array.nbytes)}; the limit is {limit})")
        self._write("array", repr(array.dtype), str(array.shape))
        if array.nbytes:
            self._hash.update(memoryview(np.ascontiguousarray(array).reshape(-1).view(np.uint8)))  # type: ignore[arg-type]

    def _add_items(self, kind: str, items: Any, name: str) -> None:
        self._write(kind, str(len(items)))
        for item in items:
            self.add(item, name)

    def _write(self, *texts: str) -> None:
        for text in texts:
            data = text.encode("utf-8", "surrogatepass")
            self._hash.update(b"%d:" % len(data) + data)


def _global_paths(code: CodeType) -> Iterator[tuple[str, ...]]:
    """Yield each global variable that the code reads, with attributes, such as ("np", "sqrt")."""
    path: list[str] = []
    for instruction in dis.get_instructions(code):
        if path and instruction.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            path.append(str(instruction.argval))
        elif instruction.opname not in ("CACHE", "PUSH_NULL", "EXTENDED_ARG"):
            if path:
                yield tuple(path)
            is_global = instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME")
            path = [str(instruction.argval)] if is_global else []
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _global_paths(constant)


def _imported_modules(code: CodeType, package: str | None) -> Iterator[str]:
    """Yield the full names of the modules that the code imports.

    `package` is the name of the package that contains the code.
    """
    steps = [step for step in dis.get_instructions(code) if step.opname != "EXTENDED_ARG"]
    for level, step in zip(steps, steps[2:], strict=False):  # three steps: load the level, load the names, import
        if step.opname == "IMPORT_NAME":
            yield _resolve_import("." * level.argval + step.argval, package)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _imported_modules(constant, package)


def _resolve_import(name: str, package: str | None) -> str:
    """Return the full name of a module, or `name` itself if `package` cannot resolve it."""
    try:
        return importlib.util.resolve_name(name, package)
    except ImportError:
        return name


@functools.cache
def _is_installed(module: str | None) -> bool:
    """Return whether a module belongs to Python or to an installed package.

    If so, the version of the package identifies the module.
    """
    top = (module or "").partition(".")[0]
    if top in sys.builtin_module_names or top in sys.stdlib_module_names or top == "forebay":
        return True
    loaded = sys.modules.get(top)
    spec = importlib.util.find_spec(top) if loaded is None and top else None
    path = getattr(loaded, "__file__", None) if spec is None else spec.origin
    folders = {Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib")}
    return path is not None and not folders.isdisjoint(Path(path).resolve().parents)


def _package_version(module: str, name: str) -> str:
    top = module.partition(".")[0]
    if top in sys.builtin_module_names or top in sys.stdlib_module_names:
        return str(sys.version_info[:2])
    version = getattr(sys.modules.get(top), "__version__", None)
    if version is None:
        try:
            return importlib.metadata.version(top)
        except importlib.metadata.PackageNotFoundError:
            raise UnstableValueError(f"{name} (the package {top!r} has no version)") from None
    return str(version)


def _is_exported(value: Any) -> bool:
    """Return whether the name of an object leads to this object in an installed module."""
    module, qualname = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if isinstance(value, np.ufunc):  # `__module__` and `__qualname__` of ufuncs differ between versions of NumPy
        module, qualname = "numpy", value.__name__
    if not isinstance(module, str) or not isinstance(qualname, str) or not _is_installed(module):
        return False
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found is value


def _is_generated(method: Any) -> bool:
    """Return whether `dataclasses` generated a method.

    The digest needs no such method, because it contains the fields from which `dataclasses` generates the code.
    """
    code = getattr(inspect.unwrap(method), "__code__", None)
    return code is not None and code.co_filename in ("<string>", dataclasses.__file__, reprlib.__file__)


def _describe(value: Any) -> str:
    kind = type(value)
    if isinstance(value, ModuleType):
        return f"the module {value.__name__!r}, which is not an installed package"
    return f"an object of the class {kind.__module__}.{kind.__qualname__}"
