"""Hooks for tf.data.

The hooks record when the script creates datasets and iterators, how long the script waits for each batch, and how long
Python functions of the user run inside a pipeline.
"""

import inspect
import os
from functools import partial
from typing import Any, Literal

from tensorflow.python.data.ops import dataset_ops, iterator_ops, readers
from tensorflow.python.ops import script_ops
from tensorflow.python.util import nest

from forebay.doctor.capture.hooks.calls import CallHook, HookedCall, hook_call, record_call
from forebay.doctor.capture.hooks.input_stages import PythonStage, fit_counter, time_stage
from forebay.doctor.capture.hooks.tensorflow.functions import is_eager
from forebay.doctor.capture.hooks.tensorflow.pipelines import API, Pipelines, api_of
from forebay.doctor.capture.hooks.tensorflow.public_names import find_public_call
from forebay.doctor.capture.hooks.tensorflow.tensors import EagerTensor, nbytes_of
from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.capture.patches import Patches
from forebay.doctor.model.events import EventKind

__all__ = ["hook_data", "hook_python_stages"]

ITER = "iter(dataset)"  # API name in events
# Methods and classes that create the root of a pipeline: a dataset that is not made from another dataset.
_ROOT_METHODS = ("from_tensor_slices", "from_tensors", "from_generator", "range", "list_files")
_READERS = (readers.TFRecordDatasetV2, readers.TextLineDatasetV2, readers.FixedLengthRecordDatasetV2)


def hook_data(patches: Patches, pipelines: Pipelines) -> None:
    _hook_datasets(patches, pipelines)
    _hook_iterators(patches, pipelines)
    hook_python_stages(patches, script_ops.FuncRegistry)


def _hook_datasets(patches: Patches, pipelines: Pipelines) -> None:
    ledger, dataset = patches.ledger, dataset_ops.DatasetV2
    for name in _ROOT_METHODS:
        api = f"Dataset.{name}"
        on_return = partial(_record_root, ledger, pipelines, api)
        # from_tensors and from_tensor_slices upload arrays inside the call; other hooks record these uploads.
        nested: Literal["recorded", "ignored"] = "recorded" if "tensor" in name else "ignored"
        hook_call(patches, dataset, name, CallHook(api, on_return, should_record=is_eager, nested=nested))
    for reader in _READERS:
        api = f"tf.data.{reader.__name__.removesuffix('V2')}"
        on_return = partial(_record_reader, ledger, pipelines, api)
        hook_call(patches, reader, "__init__", CallHook(api, on_return, should_record=is_eager))
    for name, read_facts in _STAGES.items():
        on_return = partial(_add_stage, ledger, pipelines, read_facts)
        hook_call(patches, dataset, name, CallHook(f"Dataset.{name}", on_return, should_record=is_eager))


def _hook_iterators(patches: Patches, pipelines: Pipelines) -> None:
    iterator = iterator_ops.OwnedIterator
    on_created = partial(_record_iterator, patches.ledger)
    hook_call(patches, iterator, "__init__", CallHook(ITER, on_created, should_record=is_eager))
    patches.hook_apis["keras arrays"] = API  # the hook below also records batches of Keras arrays
    on_batch = partial(_record_batch, patches.ledger, pipelines)
    for name in ("__next__", "get_next"):
        hook_call(patches, iterator, name, CallHook(API, on_batch, should_record=is_eager))


def _record_root(ledger: Ledger, pipelines: Pipelines, api: str, call: HookedCall) -> None:
    dataset = call.result
    tensors = [tensor for tensor in getattr(dataset, "_tensors", ()) if type(tensor) is EagerTensor]
    _write_root(ledger, pipelines, api, call, dataset, sum(map(nbytes_of, tensors)))


def _record_reader(ledger: Ledger, pipelines: Pipelines, api: str, call: HookedCall) -> None:
    _write_root(ledger, pipelines, api, call, call.args[0], 0)


def _write_root(ledger: Ledger, pipelines: Pipelines, api: str, call: HookedCall, dataset: Any, nbytes: int) -> None:
    detail: dict[str, Any] = {"what": "Dataset"}
    loader = {"loader": "generator"} if api.endswith("from_generator") else {}
    pipelines.add_root(dataset, detail, **loader)
    record_call(ledger, EventKind.BUILD, api, call, nbytes=nbytes, detail=detail)


def _add_stage(ledger: Ledger, pipelines: Pipelines, read_facts: Any, call: HookedCall) -> None:
    """Store the facts of a stage; for a map, also its line."""
    facts = {name: value for name, value in read_facts(call).items() if value is not None}
    if "is_serial" in facts:
        line = ledger.lines.current_line()
        facts |= {"map_line": line} | ({"mapped_at": line} if facts.pop("is_serial") else {})
    pipelines.add_stage(call.result, **facts)


# Facts of stages. "works" marks a stage that does work; a prefetch before this stage does not hide its time.
def _shuffle_facts(call: HookedCall) -> dict[str, Any]:
    return {"shuffle_rows": _to_int(call.argument(1, "buffer_size")), "works": True}


def _prefetch_facts(call: HookedCall) -> dict[str, Any]:
    return {"prefetch": _to_int(call.argument(1, "buffer_size"))}


def _batch_facts(call: HookedCall) -> dict[str, Any]:
    return {"batch_rows": _to_int(call.argument(1, "batch_size")), "works": True}


def _map_facts(call: HookedCall) -> dict[str, Any]:
    """Return the facts of a map.

    Without `num_parallel_calls`, the map is serial: it processes one element at a time.
    """
    argument = call.argument(2, "num_parallel_calls")
    parallel_calls = _to_int(argument)
    workers = os.cpu_count() if parallel_calls == dataset_ops.AUTOTUNE else parallel_calls
    return {"workers": workers, "works": True, "is_serial": argument is None}


_STAGES = {"shuffle": _shuffle_facts, "prefetch": _prefetch_facts, "batch": _batch_facts, "map": _map_facts}


def _to_int(value: Any) -> int | None:
    """Return an argument as an int; None if it is missing or a tensor.

    Reading the value of a tensor would make the script wait for the device.
    """
    return None if value is None or type(value) is EagerTensor else int(value)


def _record_iterator(ledger: Ledger, call: HookedCall) -> None:
    line = ledger.lines.current_line()
    # Without a dataset, TensorFlow only wraps an existing iterator, to pass it to a tf.function.
    if line >= 0 and call.argument(1, "dataset") is not None:
        name = find_public_call(ledger.lines, ITER).name
        api = name if name.startswith("Model.") else ITER  # methods of Keras models, such as `fit`, create iterators
        detail = {"what": "iterator"} | ({"fit": fit_counter.count} if name == "Model.fit" else {})
        ledger.write((EventKind.BUILD, api, line), call.start, call.end, detail=detail)


def _record_batch(ledger: Ledger, pipelines: Pipelines, call: HookedCall) -> None:
    tensors = [tensor for tensor in nest.flatten(call.result) if type(tensor) is EagerTensor]
    detail = pipelines.describe(call.args[0]._dataset)
    if tensors and tensors[0].shape.rank and "batch_rows" in detail:
        detail["batch_rows"] = tensors[0].shape[0]  # the last batch of an epoch may be shorter
    record_call(ledger, EventKind.INPUT, api_of(detail), call, nbytes=sum(map(nbytes_of, tensors)), detail=detail)


PY_FUNCTION_API = "tf.py_function"
_GENERATOR_WRAPPER = "generator_py_func"  # name of the function in which TensorFlow wraps a user generator
_GENERATOR_STATE = "generator_state"  # variable in the closure of the wrapper, which holds the user generator


def hook_python_stages(patches: Patches, registry: Any) -> None:
    """Time the user functions that TensorFlow calls through its registry of Python functions."""
    ledger = patches.ledger

    def hook_registry(original: Any) -> Any:
        def hook(functions: Any, token: Any, device: Any, args: Any) -> Any:
            find_stage = partial(_find_stage, ledger, functions, token)
            return time_stage(ledger, find_stage, original, functions, token, device, args)

        return hook

    patches.replace(registry, "__call__", hook_registry, api=PY_FUNCTION_API)


def _find_stage(ledger: Ledger, functions: Any, token: Any) -> PythonStage:
    function, what = _user_function(functions.get(token))
    api = "Dataset.from_generator" if what == "generator" else PY_FUNCTION_API
    return PythonStage(api, ledger.lines.line_of_function(function), what)


def _user_function(registered: Any) -> tuple[Any, str]:
    """Remove the wrappers of TensorFlow; return the user function and "map" or "generator"."""
    function = inspect.unwrap(getattr(registered, "_func", registered))
    if getattr(function, "__name__", "") != _GENERATOR_WRAPPER:
        return _innermost(function), "map"
    names, cells = function.__code__.co_freevars, function.__closure__
    return _innermost(cells[names.index(_GENERATOR_STATE)].cell_contents._generator), "generator"


def _innermost(function: Any) -> Any:
    """Return the Python function that a partial, a function or a callable object runs."""
    function = getattr(function, "func", function)
    return function if hasattr(function, "__code__") or hasattr(function, "__func__") else type(function).__call__
