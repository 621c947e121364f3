"""Finds impure reads: what makes the result of a function differ between calls.

Impure reads are those of global random numbers, the clock, the environment of the process, and files. The search looks
for names such as `np.random.rand` in the bytecode of a function. It does not look into objects, or into functions of
installed packages that the function calls.
"""

import dis
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from types import CodeType, FunctionType, ModuleType
from typing import Any

from forebay.pipeline.seeded_generators import (
    CodeStep,
    NamePath,
    draws_from_seeded_generator,
    find_name_paths,
    read_steps,
)

__all__ = ["find_impure_read"]

_RANDOM = "draws random numbers; draw them from the parameter `rng` of a map after cache()"
_UNSEEDED = (
    "draws random numbers from a generator that this function does not create and seed; write "
    "`generator = torch.Generator().manual_seed(...)` in it"
)
_CLOCK = "depends on the time"
_ENVIRONMENT = "depends on the process"
_FILES = "reads files"

_TORCH_RANDOM = ("rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "normal")
# Names of modules and of their members -> what they read. The name of a module stands for all of its members.
_IMPURE: dict[str, str] = {
    **dict.fromkeys(("random", "secrets", "numpy.random", "cupy.random", "tensorflow.random"), _RANDOM),
    **dict.fromkeys(("uuid.uuid1", "uuid.uuid4", "os.urandom", "os.getrandom", "torch.random"), _RANDOM),
    **{f"torch.{name}": _RANDOM for name in (*_TORCH_RANDOM, "bernoulli", "multinomial", "poisson", "seed")},
    **{f"tensorflow.image.random_{name}": _RANDOM for name in ("brightness", "contrast", "hue", "saturation", "crop")},
    **{f"tensorflow.image.random_{name}": _RANDOM for name in ("flip_left_right", "flip_up_down", "jpeg_quality")},
    **{f"time.{name}": _CLOCK for name in ("time", "perf_counter", "monotonic", "process_time", "thread_time")},
    **dict.fromkeys(("time.localtime", "time.ctime", "time.asctime", "time.strftime"), _CLOCK),
    **{f"time.{name}_ns": _CLOCK for name in ("time", "perf_counter", "monotonic", "process_time", "thread_time")},
    **dict.fromkeys(("datetime.datetime.now", "datetime.datetime.utcnow", "datetime.datetime.today"), _CLOCK),
    "datetime.date.today": _CLOCK,
    "torch.initial_seed": _ENVIRONMENT,
    **{f"os.{name}": _ENVIRONMENT for name in ("environ", "environb", "getenv", "getenvb", "getpid", "getcwd")},
    **{f"os.{name}": _FILES for name in ("open", "read", "listdir", "scandir", "walk", "stat")},
    **{f"numpy.{name}": _FILES for name in ("load", "fromfile", "loadtxt", "genfromtxt", "memmap")},
    **dict.fromkeys(("builtins.open", "io.open"), _FILES),
}
_BIT_GENERATORS = tuple(f"numpy.random.{name}" for name in ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64"))
# Constructors of random generators. They are pure with a seed as argument. Without one, or with None, the system seeds
# them.
_SEEDED = (
    *("random.Random", "numpy.random.default_rng", "numpy.random.RandomState", "tensorflow.random.Generator"),
    *("numpy.random.SeedSequence", *_BIT_GENERATORS),
)
_PURE = (  # classes that draw nothing when they are called, and functions whose results depend only on their arguments
    *("numpy.random.Generator", "numpy.random.BitGenerator", "numpy.random.SeedSequence", *_BIT_GENERATORS),
    *("tensorflow.random.stateless_", "tensorflow.random.experimental.stateless_", "tensorflow.random.fold_in"),
)
_STORES = ("STORE_FAST", "STORE_NAME", "STORE_DEREF", "STORE_GLOBAL")


def find_impure_read(function: FunctionType) -> str | None:
    """Return a description of the first impure read of a function, or None without one.

    >>> import time
    >>> find_impure_read(lambda row: row * time.time())
    "it uses 'time.time', which depends on the time"
    """
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    variables = {**function.__globals__, **{name: value for name, cell in cells for value in _content(cell)}}
    return _find_in_code(function.__code__, variables)


def _content(cell: Any) -> list[Any]:
    try:
        return [cell.cell_contents]
    except ValueError:  # the variable has no value yet
        return []


def _find_in_code(code: CodeType, variables: Mapping[str, Any]) -> str | None:
    local_names = {*code.co_varnames, *code.co_cellvars}
    scope = {name: value for name, value in variables.items() if name not in local_names} | dict(_imports(code))
    unknown = local_names.union(code.co_freevars).difference(scope)

    def find_name(path: tuple[str, ...]) -> str | None:
        return None if path[0] in unknown else _full_name(path, scope)

    steps = read_steps(code)
    for path in find_name_paths(steps):
        name = find_name(path.names)
        reason = None if name is None else _reason(name, has_no_seed=_has_no_seed(steps, path))
        if name is not None and reason == _RANDOM and name.startswith("torch."):
            is_seeded = draws_from_seeded_generator(code, steps, path, find_name)
            reason = {True: None, False: _UNSEEDED, None: _RANDOM}[is_seeded]
        if reason is not None:
            return f"it uses {'.'.join(path.names)!r}, which {reason}"
    for constant in code.co_consts:
        found = _find_in_code(constant, scope) if isinstance(constant, CodeType) else None
        if found is not None:
            return found
    return None


def _has_no_seed(steps: Sequence[CodeStep], path: NamePath) -> bool:
    """Return whether the code calls the object at `path` without a seed.

    Such a call has no arguments, or None as the only argument.
    """
    following = [step for step in steps[path.stop : path.stop + 4] if step.name != "PUSH_NULL"]
    constants = list(takewhile(lambda step: step.name == "LOAD_CONST", following))
    call = next(iter(following[len(constants) :]), None)
    if call is None or call.name not in ("CALL", "CALL_KW"):
        return False
    return call.value == 0 or (call.value == 1 and bool(constants) and constants[0].value is None)


def _reason(name: str, *, has_no_seed: bool) -> str | None:
    if name in _SEEDED:
        return _RANDOM if has_no_seed else None
    if name.startswith(_PURE):
        return None
    parts = name.split(".")
    names = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((_IMPURE[each] for each in names if each in _IMPURE), None)


def _full_name(path: tuple[str, ...], scope: Mapping[str, Any]) -> str | None:
    """Return the full name of the object at a path, such as "numpy.random.rand".

    Return None if the object has no name, such as a number.
    """
    if path[0] not in scope:
        return f"builtins.{path[0]}"
    value, attributes = scope[path[0]], list(path[1:])
    while isinstance(value, ModuleType) and attributes and attributes[0] in vars(value):
        if not isinstance(vars(value)[attributes[0]], ModuleType | type):
            break  # name a function by the module from which the code reads it; its own `__module__` may be private
        value = vars(value)[attributes.pop(0)]
    name = _object_name(value)
    return None if name is None else ".".join((name, *attributes))


def _object_name(value: Any) -> str | None:
    """Return the public name of a module, class or function; None for other objects.

    A function such as `random.random` is a method of a global generator. Its name begins with the generator's module.
    """
    if isinstance(value, ModuleType):
        return value.__name__.replace("._api.v2", "")
    if value is os.environ:
        return "os.environ"
    owner = getattr(value, "__self__", None)
    if owner is not None and not isinstance(owner, ModuleType | type):
        names: tuple[Any, Any] = type(owner).__module__, getattr(value, "__name__", None)
    else:
        names = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    module, name = names
    if not isinstance(module, str) or not isinstance(name, str):
        return None
    aliases = {"_io": "io", "posix": "os", "nt": "os"}
    if module.startswith("numpy.random."):
        module = "numpy.random"
    return f"{aliases.get(module, module)}.{name}"


def _imports(code: CodeType) -> Iterator[tuple[str, Any]]:
    """Yield each variable that an import inside of the code binds, and the imported object.

    Forebay has called the function before, to infer the shape of its results. So `sys.modules` has its modules.
    """
    module: Any = None
    bound: Any = None
    fromlist = constant = None
    for instruction in dis.get_instructions(code):
        name = str(instruction.argval)
        if instruction.opname == "IMPORT_NAME":
            fromlist = constant  # names after `import` in `from a import b`; None for `import a.b`, which binds `a`
            module = bound = sys.modules.get(name if fromlist else name.partition(".")[0])
        elif instruction.opname == "IMPORT_FROM":
            bound = getattr(module, name, None)
            module = module if fromlist else bound  # `import a.b.c as d` reads `b` from `a`, and then `c` from `b`
        elif instruction.opname in _STORES and bound is not None:
            yield name, bound
            bound = None
        constant = instruction.argval if instruction.opname == "LOAD_CONST" else None
