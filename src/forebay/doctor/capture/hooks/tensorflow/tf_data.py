"""tf.data: pipelines as they are made, the loop's wait for a batch, and the user's own Python inside a pipeline."""

import inspect
import os
from functools import partial
from typing import Any, Literal

from tensorflow.python.data.ops import dataset_ops, iterator_ops, readers
from tensorflow.python.eager import context
from tensorflow.python.ops import script_ops
from tensorflow.python.util import nest

from forebay.doctor.capture.hooks.calls import Call, watch_call, write
from forebay.doctor.capture.hooks.input_stages import Part, fits, prepare
from forebay.doctor.capture.hooks.tensorflow.pipelines import API, Pipelines, api_of
from forebay.doctor.capture.hooks.tensorflow.public_names import asked
from forebay.doctor.capture.hooks.tensorflow.tensors import EagerTensor, nbytes_of
from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.capture.patches import Patches
from forebay.doctor.model.events import Kind

__all__ = ["watch_data", "watch_prepares"]

ITER = "iter(dataset)"
_ROOTS = ("from_tensor_slices", "from_tensors", "from_generator", "range", "list_files")
_READERS = (readers.TFRecordDatasetV2, readers.TextLineDatasetV2, readers.FixedLengthRecordDatasetV2)


def watch_data(patches: Patches, pipelines: Pipelines) -> None:
    ledger = patches.ledger
    for name in _ROOTS:
        api = f"Dataset.{name}"
        then = partial(_made_root, ledger, pipelines, api)
        inner: Literal["seen", "hidden"] = "seen" if "tensor" in name else "hidden"  # what they convert is uploaded
        watch_call(patches, dataset_ops.DatasetV2, name, api=api, then=then, when=_is_outside, inner=inner)
    for reader in _READERS:
        api = f"tf.data.{reader.__name__.removesuffix('V2')}"
        then = partial(_made_reader, ledger, pipelines, api)
        watch_call(patches, reader, "__init__", api=api, then=then, when=_is_outside)
    for name, facts in _PARTS.items():
        then = partial(_made_part, ledger, pipelines, facts)
        watch_call(patches, dataset_ops.DatasetV2, name, api=f"Dataset.{name}", then=then, when=_is_outside)
    iterator, began, came = iterator_ops.OwnedIterator, partial(_began, ledger), partial(_came, ledger, pipelines)
    watch_call(patches, iterator, "__init__", api=ITER, then=began, when=_is_outside)
    patches.spoken["keras arrays"] = API
    for name in ("__next__", "get_next"):
        watch_call(patches, iterator, name, api=API, then=came, when=_is_outside)
    watch_prepares(patches, script_ops.FuncRegistry)


def _is_outside(*_: Any, **__: Any) -> bool:
    """Not while a graph is made."""
    return bool(context.executing_eagerly())


def _made_root(ledger: Ledger, pipelines: Pipelines, api: str, call: Call) -> None:
    dataset = call.result
    tensors = [tensor for tensor in getattr(dataset, "_tensors", ()) if type(tensor) is EagerTensor]
    _write_root(ledger, pipelines, api, call, dataset, sum(map(nbytes_of, tensors)))


def _made_reader(ledger: Ledger, pipelines: Pipelines, api: str, call: Call) -> None:
    _write_root(ledger, pipelines, api, call, call.args[0], 0)


def _write_root(ledger: Ledger, pipelines: Pipelines, api: str, call: Call, dataset: Any, nbytes: int) -> None:
    detail: dict[str, Any] = {"what": "Dataset"}
    loader = {"loader": "generator"} if api.endswith("from_generator") else {}
    pipelines.add_root(dataset, detail, **loader)
    write(ledger, Kind.BUILD, api, call, nbytes=nbytes, detail=detail)


def _made_part(ledger: Ledger, pipelines: Pipelines, facts: Any, call: Call) -> None:
    told = {name: value for name, value in facts(call).items() if value is not None}
    if told.pop("is_serial", False):
        told["mapped_at"] = ledger.lines.here()
    pipelines.add_part(call.result, **told)


def _shuffled(call: Call) -> dict[str, Any]:
    return {"shuffle_rows": _number(call.argument(1, "buffer_size")), "works": True}


def _prefetched(call: Call) -> dict[str, Any]:
    return {"prefetch": _number(call.argument(1, "buffer_size"))}


def _batched(call: Call) -> dict[str, Any]:
    return {"batch_rows": _number(call.argument(1, "batch_size")), "works": True}


def _mapped(call: Call) -> dict[str, Any]:
    """How many calls at a time; nothing where each waits for the one before."""
    calls = _number(call.argument(2, "num_parallel_calls"))
    workers = os.cpu_count() if calls == dataset_ops.AUTOTUNE else calls
    return {"workers": workers, "works": True, "is_serial": calls is None}


_PARTS = {"shuffle": _shuffled, "prefetch": _prefetched, "batch": _batched, "map": _mapped}


def _number(value: Any) -> int | None:
    """Whoever gives a tensor does not get it read back for our sake."""
    return None if value is None or type(value) is EagerTensor else int(value)


def _began(ledger: Ledger, call: Call) -> None:
    line = ledger.lines.here()
    if line >= 0 and call.argument(1, "dataset") is not None:  # else it is the same one, on its way into a function
        name = asked(ledger.lines, ITER).name
        by_keras = name.startswith("Model.")  # which makes its own for each epoch
        detail = {"what": "iterator"} | ({"fit": fits.begun} if name == "Model.fit" else {})
        ledger.add(Kind.BUILD, name if by_keras else ITER, call.start, end=call.end, detail=detail, line=line)


def _came(ledger: Ledger, pipelines: Pipelines, call: Call) -> None:
    tensors = [tensor for tensor in nest.flatten(call.result) if type(tensor) is EagerTensor]
    detail = pipelines.of(call.args[0]._dataset)
    if tensors and tensors[0].shape.rank and "batch_rows" in detail:
        detail["batch_rows"] = tensors[0].shape[0]
    write(ledger, Kind.INPUT, api_of(detail), call, nbytes=sum(map(nbytes_of, tensors)), detail=detail)


PY_FUNCTION_API = "tf.py_function"
_GENERATOR = "generator_py_func"  # TensorFlow's own function around a generator of the user's
_HOLDS_GENERATOR = "generator_state"


def watch_prepares(patches: Patches, registry: Any) -> None:
    """The registry is where TensorFlow comes to call Python."""
    ledger = patches.ledger

    def make(original: Any) -> Any:
        def hook(functions: Any, token: Any, device: Any, args: Any) -> Any:
            about = partial(_about, ledger, functions, token)
            return prepare(ledger, about, original, functions, token, device, args)

        return hook

    patches.replace(registry, "__call__", make, api=PY_FUNCTION_API)


def _about(ledger: Ledger, functions: Any, token: Any) -> Part:
    function, what = _function_of(functions.get(token))
    api = "Dataset.from_generator" if what == "generator" else PY_FUNCTION_API
    return Part(api, ledger.lines.of_code(function), what)


def _function_of(registered: Any) -> tuple[Any, str]:
    """What the user wrote, under all that was put around it."""
    function = inspect.unwrap(getattr(registered, "_func", registered))
    if getattr(function, "__name__", "") != _GENERATOR:
        return _innermost(function), "map"
    names, cells = function.__code__.co_freevars, function.__closure__
    return _innermost(cells[names.index(_HOLDS_GENERATOR)].cell_contents._generator), "generator"


def _innermost(function: Any) -> Any:
    """A function of a partial, the method of an object that is called."""
    function = getattr(function, "func", function)
    return function if hasattr(function, "__code__") or hasattr(function, "__func__") else type(function).__call__
