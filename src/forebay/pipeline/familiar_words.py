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

_PREFETCH = "Forebay prefetches batches by itself; `explain()` of a feed shows how many. Leave prefetch() out."
_TO_DEVICE = "A feed brings batches to the device. Write pipeline.feed('torch', device='cuda')."
_THREADS = "Forebay chooses the number of threads; `explain()` of a feed shows it. Leave the argument out."
_WORKERS = f"{_THREADS} For a map of pure Python code, write map(function, where='process', workers=4)."
_PINNED = "Forebay page-locks host memory by itself if batches go to a GPU. Leave the argument out."
_SHUFFLE = "Forebay shuffles all rows, not a buffer. Write shuffle(seed=0); for a stream, shuffle(window='64MB')."
_DESCRIBE_FIRST = "A pipeline describes this before feed(). Call it there: pipeline"
_KERAS_SPLITTING = "keras.src.trainers.data_adapters.array_slicing"  # module of Keras that splits rows
_SPLIT = "Split the rows before batch(): train, validation = pipeline.split(0.9, 0.1)."
_SPLIT_WORDS = "Pass the share of each part: train, validation = pipeline.split(0.9, 0.1)."
_ROWS = "Set the batch size before feed(): pipeline.batch({value})."
_STATE = "A feed has the state: feed = pipeline.feed('torch'), then feed.state_dict() and feed.load_state_dict(state)."
_PLAN = "A feed has the plan: call pipeline.feed('torch').explain()."
_COLLATE = "Forebay makes batches without it. Convert batches with batch(32).map(function); pad rows with batch(pad=0)."
_STREAM_SPEC = "Pass spec=fb.ArraySpec(shape, dtype), or leave it out: Forebay then reads it from the first row."

# Attributes of other libraries: what to do in Forebay.
_MODULE = {
    "DataLoader": "Begin with fb.from_source(dataset) or fb.from_arrays(...), then .batch(32).feed('torch').",
    "Dataset": "A dataset is a pipeline here. Begin with fb.from_arrays(...) or fb.from_files(...).",
    "TensorDataset": "Write fb.from_arrays((x, y)).",
    "concatenate": "Write fb.concat(first, second).",
    "doctor": "It is a module of its own. Write `import forebay.doctor`, or run `forebay doctor train.py`.",
    "from_dataset": "Write fb.from_source(dataset) for rows, or fb.from_batches(loader) for batches of another loader.",
    "from_numpy": "Write fb.from_arrays(array).",
    "from_pandas": "Write fb.from_frame(frame).",
    "from_tensor_slices": "Write fb.from_arrays((x, y)).",
    "load_dataset": "Write fb.from_files('*.parquet'), or fb.from_source(dataset) for a loaded dataset.",
    "random_split": "Write train, test = pipeline.split(0.8, 0.2), before batch().",
    "sample_from_datasets": "Write fb.interleave(first, second, weights=(7, 3)).",
    "watch": "It is in the module of the doctor. Write `from forebay.doctor import watch`.",
    "zip": "Write fb.zip_rows(first, second).",
}
_PIPELINE = {
    "apply": "Call the function with the pipeline: function(pipeline).",
    "as_numpy_iterator": "Iterate pipeline.feed('numpy').",
    "cardinality": "Write len(pipeline), which counts rows before batch() and batches after it.",
    "concatenate": "Write fb.concat(first, second).",
    "cuda": _TO_DEVICE,
    "element_spec": "Read pipeline.specs, or feed.specs after maps.",
    "enumerate": "Add the row numbers as a field: fb.from_arrays({'row': np.arange(len(x)), 'x': x}).",
    "explain": _PLAN,
    "flat_map": "Write fb.from_generator(function), whose function yields the rows.",
    "from_generator": "Write fb.from_generator(function).",
    "from_tensor_slices": "Write fb.from_arrays((x, y)).",
    "interleave": "Write fb.interleave(first, second), or fb.from_files('*.tfrecord') for many files.",
    "load_state_dict": _STATE,
    "make_one_shot_iterator": "Iterate pipeline.feed('tensorflow').",
    "numpy": "Iterate pipeline.feed('numpy').",
    "padded_batch": "Write batch(32, pad=0).",
    "plan": _PLAN,
    "prefetch": _PREFETCH,
    "resume": _STATE,
    "set_format": "Choose the framework of the batches: pipeline.feed('torch').",
    "state_dict": _STATE,
    "stats": "A feed has statistics: feed = pipeline.feed('torch'), then feed.stats().",
    "to": _TO_DEVICE,
    "train_test_split": "Write train, test = pipeline.split(0.8, 0.2).",
    "unbatch": "A pipeline has rows until batch(). Call the methods for rows before batch().",
    "with_format": "Choose the framework of the batches: pipeline.feed('torch').",
    "with_options": "Forebay chooses threads and buffers by itself; `explain()` of a feed shows them. Leave it out.",
    "zip": "Write fb.zip_rows(first, second).",
}
_FEED = {
    "as_numpy_iterator": "Iterate pipeline.feed('numpy').",
    "backup_and_restore": "It is for fit() of Keras: pipeline.feed('keras').backup_and_restore('backup').",
    "batch": f"{_DESCRIBE_FIRST}.batch(32).feed(...).",
    "batch_size": "Read feed.batch_rows.",
    "cache": f"{_DESCRIBE_FIRST}.cache('8GB').batch(32).feed(...).",
    "cardinality": "Write len(feed).",
    "cuda": _TO_DEVICE,
    "element_spec": "Read feed.specs.",
    "map": f"{_DESCRIBE_FIRST}.map(function).batch(32).feed(...).",
    "prefetch": _PREFETCH,
    "repeat": f"{_DESCRIBE_FIRST}.repeat().batch(32).feed(...). Each loop over a feed is the next epoch.",
    "resume": "Write feed.load_state_dict(state), with a state from feed.state_dict().",
    "shuffle": f"{_DESCRIBE_FIRST}.shuffle(seed=0).batch(32).feed(...).",
    "take": f"{_DESCRIBE_FIRST}.batch(32).take(10).feed(...).",
    "to": _TO_DEVICE,
}
_ATTRIBUTES = {"module 'forebay'": _MODULE, "a pipeline": _PIPELINE, "a feed": _FEED}

# Arguments of other libraries, by the function of Forebay: what to do. {value} is the value of the argument.
_ARGUMENTS = {
    "batch": {
        "batch_size": "Write batch({value}).",
        "collate_fn": _COLLATE,
        "deterministic": "The order of batches is always the same. Leave the argument out.",
        "num_parallel_calls": _THREADS,
        "num_workers": _WORKERS,
        "pin_memory": _PINNED,
    },
    "cache": {"filename": "Write cache('folder') to keep rows on disk, or cache('8GB') to keep them in RAM."},
    "feed": {
        "batch_size": _ROWS,
        "collate_fn": _COLLATE,
        "drop_last": "Set it before feed(): pipeline.batch(32, drop_remainder=True).",
        "num_workers": _WORKERS,
        "persistent_workers": "Workers stay alive until feed.close(). Leave the argument out.",
        "pin_memory": _PINNED,
        "prefetch_factor": _PREFETCH.replace("prefetch()", "it"),
        "sampler": "Choose rows before feed(): pipeline.sample(...), .select(...) or .shard('auto').",
        "shuffle": "Set the order before feed(): pipeline.shuffle(seed=0).batch(32).",
        "validation_split": f"{_SPLIT} Make a feed of each, and pass the second one as validation_data of fit().",
    },
    "from_arrays": {
        "batch_size": "Write from_arrays(arrays).batch({value}).",
        "shuffle": "Write from_arrays(arrays).shuffle(seed=0).",
    },
    "from_generator": {
        "args": "Pass a function without arguments: from_generator(lambda: generate(argument)).",
        "output_shapes": _STREAM_SPEC,
        "output_signature": _STREAM_SPEC,
        "output_types": _STREAM_SPEC,
    },
    "from_images": {
        "batch_size": "Write from_images(...).batch(32).",
        "color_mode": "Write channels=1 for gray images, 3 for RGB (the default) or 4 for RGBA.",
        "image_size": "Write size=(height, width).",
        "label_mode": "Write label='folder', which gives class numbers; map(fb.one_hot({'label': 10})) encodes them.",
        "labels": "Write label='folder', or a table or function for label=.",
        "seed": "Write from_images(...).shuffle(seed=0).",
        "shuffle": "Write from_images(...).shuffle(seed=0).",
        "validation_split": _SPLIT,
    },
    "map": {
        "batched": "Call map() after batch() for a function of batches.",
        "deterministic": "The order of rows is always the same. Leave the argument out.",
        "num_parallel_calls": _WORKERS,
        "num_proc": "Write map(function, where='process', workers=4).",
        "num_workers": _WORKERS,
    },
    "sample": {
        "class_weight": "Write sample(balance='label'), which draws all classes equally often, or pass it to fit().",
        "num_samples": "Write sample(..., rows={value}).",
    },
    "shuffle": {
        "buffer_size": _SHUFFLE,
        "reshuffle_each_iteration": "Every epoch has another order. Leave the argument out.",
    },
    "split": {
        "random_state": "Write split(0.9, 0.1, seed={value}).",
        "test_size": _SPLIT_WORDS,
        "train_size": _SPLIT_WORDS,
        "validation_split": _SPLIT_WORDS,
    },
    "window": {
        "block_size": "Write window({value}, horizon=1) for inputs of {value} tokens, and their targets.",
        "sequence_length": "Write window({value}).",
        "sequence_stride": "Write stride={value}.",
        "shift": "Write stride={value}.",
        "size": "Write window({value}).",
    },
}
# Values of other libraries, by the function and the argument of Forebay: what to do.
_VALUES = {("from_images", "label", "inferred"): "Write label='folder': the folder of a file is its class."}
# What to do if a call has more positional arguments than the function, or no argument.
_TOO_MANY = {"shuffle": _SHUFFLE, "from_arrays": "Pass all arrays as one value: from_arrays((x, y))."}
_NO_ARGUMENT = {"cache": "Write cache('8GB') to keep up to 8 GB in RAM, or cache('folder') to keep rows on disk."}
# Arguments of equal meaning: the word of Forebay.
_SYNONYMS = {("batch", "drop_last"): "drop_remainder"}


def accept_familiar_arguments(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Decorate a function of pipelines to treat arguments of other libraries.

    Synonyms (`_SYNONYMS`) work. Other known arguments raise a PipelineError that says what to write. Arguments that are
    in no table raise a TypeError with the nearest argument of the function.
    """
    name, code = function.__name__, inspect.unwrap(function).__code__
    receivers = int(code.co_varnames[:1] == ("self",))
    has_options = bool(code.co_flags & inspect.CO_VARKEYWORDS)
    known = code.co_varnames[receivers : code.co_argcount + code.co_kwonlyargcount]

    @functools.wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        if len(args) > code.co_argcount and name in _TOO_MANY:
            raise PipelineError(f"{name}({_describe(args[receivers:])}): {_TOO_MANY[name]}")
        if not args[receivers:] and not kwargs and name in _NO_ARGUMENT:
            raise PipelineError(f"{name}() needs an argument. {_NO_ARGUMENT[name]}")
        arguments: dict[str, Any] = {_SYNONYMS.get((name, key), key): value for key, value in kwargs.items()}
        if len(arguments) < len(kwargs):
            raise PipelineError(f"{name}() got two words of equal meaning: {', '.join(kwargs)}. Pass one of them.")
        for key in arguments.keys() & _ARGUMENTS.get(name, {}).keys():
            value = reprlib.repr(arguments[key])
            raise PipelineError(f"{name}({key}={value}): {_ARGUMENTS[name][key].replace('{value}', value)}")
        for key, value in arguments.items():
            if isinstance(value, str) and (name, key, value) in _VALUES:
                raise PipelineError(f"{name}({key}={value!r}): {_VALUES[name, key, value]}")
        if not has_options and not arguments.keys() <= set(known):
            _refuse_argument(function.__qualname__, arguments, known)
        return function(*args, **arguments)

    if receivers:
        # Python's errors name the public class, not the one with the method. `call` keeps the name that pickle needs.
        function.__qualname__ = f"Pipeline.{name}"
    return call


def reject_attribute(owner: Any, name: str, kind: str) -> Any:
    """Raise an error for a missing attribute.

    For a name of another library, the error says what to write. For other names, it is Python's AttributeError.
    `__getattr__` calls this function. Python also calls `__getattr__` if a property raises an AttributeError. Then this
    function reads the property again, so that the same error is raised.
    """
    if name == "__array__":
        _refuse_validation_split(kind, sys._getframe(2))
    if name in _ATTRIBUTES[kind]:
        raise UnknownNameError(f"{kind} has no {name!r}. {_ATTRIBUTES[kind][name]}")
    if isinstance(owner, ModuleType):
        raise AttributeError(f"{kind} has no attribute {name!r}")
    return object.__getattribute__(owner, name)


def refuse_index(kind: str, index: Any) -> NoReturn:
    """Raise an error for `feed[0]` or `pipeline[0]`, which a DataLoader of PyTorch also calls."""
    raise PipelineError(
        f"{kind} has no rows by index, but got [{reprlib.repr(index)}]. Iterate pipeline.feed('torch') itself instead "
        "of a DataLoader of it; for a trainer that needs a DataLoader, pass pipeline.feed('loader')."
    )


def refuse_keras(kind: str, caller: Any) -> None:
    """Raise an error if Keras formats a pipeline or a feed.

    Keras formats an object that `fit` cannot read, to name it in an error message.
    """
    if caller.f_globals.get("__name__", "").startswith("keras.src.trainers.data_adapters"):
        raise PipelineError(f"Keras cannot read {kind}. Pass pipeline.feed('keras') to fit(), evaluate() or predict().")


def refuse_unknown_options(to: str, unknown: Iterable[str], options: Iterable[str]) -> None:
    """Raise an error for the first keyword that `feed(to)` does not take, with the option of the nearest name."""
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
    names = [name for name in names if name != "rng"]
    if len(names) < 2:
        return
    raise PipelineError(
        f"map() passes a {unit} as one value, but the function takes {len(names)}: {', '.join(names)}. "
        f"{_field_advice(names, paths, unit)}For random numbers, name the parameter rng."
    )


def _field_advice(names: list[str], paths: tuple[str, ...], unit: str) -> str:
    """Return how to pass the fields of a row to a function. Parameters may have names that are not its fields."""
    if set(names) <= set(paths):
        keys = map(repr, names)
    elif len(paths) >= len(names) and paths[0] == "0":
        keys = map(str, range(len(names)))
    else:
        return f"Take its fields inside the function: {unit}[...]. "
    return f"Write map(lambda {unit}: function({', '.join(f'{unit}[{key}]' for key in keys)})). "


def _refuse_argument(function: str, arguments: Iterable[str], known: Sequence[str]) -> NoReturn:
    """Raise a TypeError for the first unknown argument, with the nearest known one."""
    unknown = next(name for name in arguments if name not in known)
    nearest = "".join(f" Did you mean {name!r}?" for name in get_close_matches(unknown, known, n=1))
    raise TypeError(f"{function}() got an unexpected keyword argument {unknown!r}.{nearest}")


def _refuse_validation_split(kind: str, caller: FrameType | None) -> None:
    """Raise an error if Keras looks for `__array__` because it splits the rows of `fit`."""
    while caller is not None and caller.f_globals.get("__name__") == _KERAS_SPLITTING:
        if caller.f_code.co_name == "train_validation_split":
            raise PipelineError(
                f"fit() got validation_split, but Keras cannot split {kind}. {_SPLIT} Make a feed of each: "
                "model.fit(train.batch(32).feed('keras'), validation_data=validation.batch(32).feed('keras'))."
            )
        caller = caller.f_back


def _describe(values: tuple[Any, ...]) -> str:
    """Return numbers and texts as they are, and the types of other values."""
    return ", ".join(repr(each) if isinstance(each, int | str) else type(each).__name__ for each in values)
