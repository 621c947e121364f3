"""Words of other loaders: Forebay accepts them, or names its own word in an error."""

import functools
import inspect
import reprlib
import sys
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from types import FrameType, ModuleType
from typing import Any, NoReturn, ParamSpec, TypeVar

from forebay.errors import PipelineError, UnknownNameError
from forebay.pipeline.familiar_tables import (
    ARGUMENTS,
    ATTRIBUTES,
    FIELDS_AS_ARGUMENTS,
    NO_ARGUMENT,
    SPLIT,
    SYNONYMS,
    TOO_MANY_ARGUMENTS,
    VALUES,
)

__all__ = [
    "accept_familiar_arguments",
    "refuse_index",
    "refuse_keras",
    "refuse_several_parameters",
    "refuse_unknown_options",
    "reject_attribute",
]

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

# The error for a missing attribute suggests only names with at least this similarity, as difflib computes it.
MIN_SIMILARITY = 0.75
_KERAS_SPLITTING = "keras.src.trainers.data_adapters.array_slicing"  # module of Keras that splits the rows of `fit`


def accept_familiar_arguments(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Decorate a public function, so that it recognises arguments of other libraries.

    An argument in `SYNONYMS` works like Forebay's own. An argument in one of the other tables raises a PipelineError
    that says what to write. If the function has no `**options`, an argument in no table raises a TypeError that
    names the most similar argument.
    """
    name, code = function.__name__, inspect.unwrap(function).__code__
    receivers = int(code.co_varnames[:1] == ("self",))
    has_options = bool(code.co_flags & inspect.CO_VARKEYWORDS)
    known = code.co_varnames[receivers : code.co_argcount + code.co_kwonlyargcount]

    @functools.wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        _refuse_random_key(name, (*args[code.co_argcount :], kwargs.get("seed")))
        if len(args) > code.co_argcount and name in TOO_MANY_ARGUMENTS:
            raise PipelineError(f"{name}({_describe(args[receivers:])}): {TOO_MANY_ARGUMENTS[name]}")
        if not args[receivers:] and not kwargs and name in NO_ARGUMENT:
            raise PipelineError(f"{name}() needs an argument. {NO_ARGUMENT[name]}")
        arguments: dict[str, Any] = {SYNONYMS.get((name, key), key): value for key, value in kwargs.items()}
        if len(arguments) < len(kwargs):
            raise PipelineError(f"{name}() got two words of equal meaning: {', '.join(kwargs)}. Pass one of them.")
        hints = ARGUMENTS.get(name, {})
        for key in filter(hints.__contains__, arguments):
            value = reprlib.repr(arguments[key])
            raise PipelineError(f"{name}({key}={value}): {hints[key].replace('{value}', value)}")
        for key, value in arguments.items():
            if isinstance(value, str) and (name, key, value) in VALUES:
                raise PipelineError(f"{name}({key}={value!r}): {VALUES[name, key, value]}")
        if not has_options and not arguments.keys() <= set(known):
            if not args[receivers:]:
                _refuse_fields_as_arguments(name, arguments, known)
            _refuse_argument(function.__qualname__, arguments, known)
        return function(*args, **arguments)

    if receivers:
        # Python's errors then name the public class, not its base class. `call` keeps its own qualified name, by which
        # pickle finds it.
        function.__qualname__ = f"Pipeline.{name}"
    return call


def reject_attribute(owner: Any, name: str, kind: str) -> Any:
    """Raise an error for a missing attribute.

    `kind` is a key of `ATTRIBUTES`, such as "a feed". For a name of another library, the error says what to write. For
    any other name, it suggests the most similar attribute.

    `__getattr__` calls this function. Python also calls `__getattr__` if a property raises an AttributeError. In this
    case, this function reads the property again, so that the user sees the error of the property.
    """
    if name == "__array__":
        _refuse_validation_split(kind, sys._getframe(2))
    if name in ATTRIBUTES[kind]:
        raise UnknownNameError(f"{kind} has no {name!r}. {ATTRIBUTES[kind][name]}")
    if isinstance(owner, ModuleType):
        raise AttributeError(f"{kind} has no attribute {name!r}{_nearest_name(owner, name)}")
    if name.startswith("_") or hasattr(type(owner), name):
        return object.__getattribute__(owner, name)
    raise AttributeError(f"{type(owner).__name__!r} object has no attribute {name!r}{_nearest_name(type(owner), name)}")


def _nearest_name(owner: Any, name: str) -> str:
    """Return ". Did you mean ...?" with the most similar public attribute; empty without one."""
    public = [each for each in dir(owner) if not each.startswith("_")]
    return "".join(f". Did you mean {each!r}?" for each in get_close_matches(name, public, n=1, cutoff=MIN_SIMILARITY))


def refuse_index(kind: str, index: Any) -> NoReturn:
    """Raise an error for `feed[0]` or `pipeline[0]`.

    A DataLoader of PyTorch over a feed or a pipeline makes the same call.
    """
    if isinstance(index, slice):
        parts = [index.start, index.stop] + [index.step] * (index.step is not None)
        text = ":".join("" if part is None else repr(part) for part in parts)
        is_first_rows = index.start is None and index.step is None and isinstance(index.stop, int) and index.stop > 0
        take = f"pipeline.take({index.stop}) or " if is_first_rows else ""
        raise PipelineError(
            f"{kind} has no rows by index, but got [{text}]. Write {take}pipeline.select({index!r}) "
            "before batch() and feed()."
        )
    raise PipelineError(
        f"{kind} has no rows by index, but got [{reprlib.repr(index)}]. Iterate pipeline.feed('torch') itself instead "
        "of a DataLoader of it; for a trainer that needs a DataLoader, pass pipeline.feed('loader')."
    )


def refuse_keras(kind: str, caller: Any) -> None:
    """Raise an error if Keras formats a pipeline or a feed as text.

    If `fit` cannot read an object, Keras formats it for an error message. `caller` is the frame that formats
    the object.
    """
    if caller.f_globals.get("__name__", "").startswith("keras.src.trainers.data_adapters"):
        raise PipelineError(f"Keras cannot read {kind}. Pass pipeline.feed('keras') to fit(), evaluate() or predict().")


def refuse_unknown_options(to: str, unknown: Iterable[str], options: Iterable[str]) -> None:
    """Raise an error for the first keyword that `feed(to)` does not take.

    The error names the most similar option.
    """
    options = list(options)
    for name in sorted(unknown):
        nearest = "".join(f" Write {option}=." for option in get_close_matches(name, options, n=1))
        fields = "" if "sample_weight" in options else "; naming fields is for feed('keras')"
        raise PipelineError(f"feed({to!r}) takes no {name!r}.{nearest} It takes {', '.join(options)}{fields}.")


def refuse_several_parameters(function: Callable[..., Any], paths: tuple[str, ...], unit: str) -> None:
    """Raise an error if the function of a map takes several arguments.

    A map passes a row or a batch as one value. `paths` are the names of the fields, `unit` is "row" or "batch".
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some functions in C have no signature
        return
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [each.name for each in parameters if each.kind in positional and each.default is each.empty]
    draws, names = "rng" in names, [name for name in names if name != "rng"]
    if len(names) < 2:
        return
    raise PipelineError(
        f"map() passes a {unit} as one value, but the function takes {len(names)}: {', '.join(names)}. "
        f"{_field_advice(names, paths, unit, draws=draws)}For random numbers, name the parameter rng."
    )


def _field_advice(names: list[str], paths: tuple[str, ...], unit: str, *, draws: bool) -> str:
    """Return a sentence with code that passes the fields of a row to a function.

    `names` are the parameters of the function, `paths` the fields. The code matches them by name or by position. With
    `draws`, the function also has the parameter `rng`.
    """
    if set(names) <= set(paths):
        keys = map(repr, names)
    elif len(paths) >= len(names) and paths[0] == "0":
        keys = map(str, range(len(names)))
    else:
        return f"Take its fields inside the function: {unit}[...]. "
    fields, parameters = [f"{unit}[{key}]" for key in keys], f"{unit}, rng" if draws else unit
    return f"Write map(lambda {parameters}: function({', '.join([*fields, 'rng=rng'] if draws else fields)})). "


def _refuse_argument(function: str, arguments: Iterable[str], known: Sequence[str]) -> NoReturn:
    """Raise a TypeError for the first unknown argument, and suggest the most similar known one."""
    unknown = next(name for name in arguments if name not in known)
    nearest = "".join(f" Did you mean {name!r}?" for name in get_close_matches(unknown, known, n=1))
    raise TypeError(f"{function}() got an unexpected keyword argument {unknown!r}.{nearest}")


def _refuse_fields_as_arguments(name: str, arguments: Iterable[str], known: Sequence[str]) -> None:
    """Raise an error for `from_arrays(x=x, y=y)`, unless a name may be a misspelt argument."""
    fields = [field for field in arguments if field not in known]
    if name not in FIELDS_AS_ARGUMENTS or any(get_close_matches(field, known, n=1) for field in fields):
        return
    values = "{" + ", ".join(f'"{field}": {field}' for field in fields) + "}"
    call = ", ".join(f"{field}=..." for field in fields)
    raise PipelineError(f"{name}({call}): {FIELDS_AS_ARGUMENTS[name].replace('{fields}', values)}")


def _refuse_random_key(name: str, values: tuple[Any, ...]) -> None:
    """Raise an error if one of the values is a key of `jax.random`."""
    jax: Any = sys.modules.get("jax")
    if not hasattr(jax, "Array"):  # not imported, or another thread is still importing it
        return
    if any(isinstance(value, jax.Array) and _is_random_key(jax, value) for value in values):
        advice = "Write shuffle(seed=0)." if name == "shuffle" else f"Write {name}(..., seed=0)."
        raise PipelineError(f"{name}(): a seed is a whole number, not a key of jax.random. {advice}")


def _is_random_key(jax: Any, array: Any) -> bool:
    """Return whether an array is the result of `jax.random.key` or `jax.random.PRNGKey`."""
    is_raw_key = array.shape == (2,) and str(array.dtype) == "uint32"
    return is_raw_key or bool(jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key))


def _refuse_validation_split(kind: str, caller: FrameType | None) -> None:
    """Raise an error if Keras looks for `__array__` because it splits the rows of `fit`."""
    while caller is not None and caller.f_globals.get("__name__") == _KERAS_SPLITTING:
        if caller.f_code.co_name == "train_validation_split":
            raise PipelineError(
                f"fit() got validation_split, but Keras cannot split {kind}. {SPLIT} Make a feed of each part: "
                "model.fit(train.batch(32).feed('keras'), validation_data=validation.batch(32).feed('keras'))."
            )
        caller = caller.f_back


def _describe(values: tuple[Any, ...]) -> str:
    """Return arguments as text: numbers and texts as they are, others by their type."""
    return ", ".join(repr(each) if isinstance(each, int | str) else type(each).__name__ for each in values)
