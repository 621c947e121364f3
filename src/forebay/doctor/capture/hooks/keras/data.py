"""Hooks for the input of Keras `fit`.

The hooks record which loader `fit` uses, how long the JAX backend waits for each batch, and how long user code (a
`PyDataset` or a generator) takes to make a batch.
"""

import sys
from collections.abc import Iterator
from functools import partial
from time import perf_counter_ns
from types import SimpleNamespace
from typing import Any

import keras
from keras.src.trainers.data_adapters import (
    array_data_adapter,
    generator_data_adapter,
    py_dataset_adapter,
    tf_dataset_adapter,
)

from forebay.doctor.capture.hooks.calls import CallHook, HookedCall, hook_call, record_call, run_guarded
from forebay.doctor.capture.hooks.input_stages import PythonStage, dataset_facts, time_stage
from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.capture.patches import Patches
from forebay.doctor.model.events import EventKind

__all__ = ["hook_data"]

INPUT = "keras input"  # API name in notes about failures
ROW, GENERATOR = "PyDataset.__getitem__", "generator"  # API names in events and in notes about failures
# Class of the Keras adapter -> name of the loader in events. "generator" means that Python code makes the batches.
# Adapters that are not listed count as "generator" too.
_LOADERS = {
    "ArrayDataAdapter": "arrays",
    "TFDatasetAdapter": "tf.data",
    "GeneratorDataAdapter": "generator",
    "PyDatasetAdapter": "generator",
}
_ADAPTERS = (  # module and class
    (array_data_adapter, "ArrayDataAdapter"),
    (tf_dataset_adapter, "TFDatasetAdapter"),
    (generator_data_adapter, "GeneratorDataAdapter"),
    (py_dataset_adapter, "PyDatasetAdapter"),
)


def hook_data(patches: Patches) -> None:
    # Nested hooks must record: TensorFlow's hooks collect facts while Keras creates the tf.data pipeline.
    for module, name in _ADAPTERS:
        adapter = getattr(module, name)
        hook_call(patches, adapter, "get_tf_dataset", CallHook("Model.fit", _add_dataset_facts, nested="recorded"))
    _hook_waits(patches)
    _hook_py_datasets(patches)
    _hook_generators(patches)


def _add_dataset_facts(call: HookedCall) -> None:
    """Store facts about the dataset that an adapter returned; TensorFlow's hooks read them."""
    dataset_facts.add(call.result, **_read_facts(call.args[0]))


def _read_facts(adapter: Any) -> dict[str, Any]:
    """Return the details of input events: loader, rows per batch and workers of an adapter."""
    facts: dict[str, Any] = {"loader": _LOADERS.get(type(adapter).__name__, "generator")}
    rows, dataset = getattr(adapter, "batch_size", None), getattr(adapter, "py_dataset", None)
    facts |= {"batch_rows": rows} if rows else {}
    return facts | ({"workers": dataset.workers} if dataset is not None and dataset.workers > 1 else {})


def _hook_waits(patches: Patches) -> None:
    """Time how long the JAX backend waits for each batch.

    This backend iterates over batches in Python. The hooks of TensorFlow and PyTorch time the other backends.
    """
    trainer = sys.modules.get("keras.src.backend.jax.trainer")
    if keras.backend.backend() == "jax" and trainer is not None:
        hook_iterator = partial(_hook_iterator, patches.ledger)
        patches.replace(trainer.JAXEpochIterator, "_get_iterator", hook_iterator, api=INPUT)


def _hook_iterator(ledger: Ledger, original: Any) -> Any:
    def hook(epoch_iterator: Any) -> Any:
        batches = iter(original(epoch_iterator))
        return _record_waits(ledger, batches, _read_facts(epoch_iterator.data_adapter)) if ledger.is_on else batches

    return hook


def _record_waits(ledger: Ledger, batches: Iterator[Any], facts: dict[str, Any]) -> Iterator[Any]:
    """Yield the batches of `batches` and record how long Keras waits for each."""
    end = object()
    while True:
        start = perf_counter_ns()
        batch = next(batches, end)
        if batch is end:
            return
        if ledger.is_on:
            call = HookedCall(start, perf_counter_ns(), batch, (), {})
            run_guarded(ledger, INPUT, _record_batch, ledger, call, facts)
        yield batch


def _record_batch(ledger: Ledger, call: HookedCall, facts: dict[str, Any]) -> None:
    nbytes = sum(getattr(array, "nbytes", 0) for array in keras.tree.flatten(call.result))
    record_call(ledger, EventKind.INPUT, f"keras {facts['loader']}", call, nbytes=nbytes, detail=facts)


def _hook_py_datasets(patches: Patches) -> None:
    """Hook `__getitem__` of each user subclass of `PyDataset`, when Keras wraps its first instance."""
    hooked_classes: set[type] = set()

    def on_adapter(call: HookedCall) -> None:
        dataset_class = type(call.args[0].py_dataset)
        if dataset_class not in hooked_classes:
            hooked_classes.add(dataset_class)
            patches.replace(dataset_class, "__getitem__", partial(_hook_getitem, patches.ledger), api=ROW)

    hook_call(patches, py_dataset_adapter.PyDatasetAdapter, "__init__", CallHook(ROW, on_adapter))


def _hook_getitem(ledger: Ledger, original: Any) -> Any:
    # The hooks call every `__getitem__` a "row" stage, although that of a `PyDataset` makes a whole batch.
    stage = PythonStage(ROW, ledger.lines.line_of_function(original), "row")

    def hook(*args: Any) -> Any:
        return time_stage(ledger, lambda: stage, original, *args)

    return hook


def _hook_generators(patches: Patches) -> None:
    ledger = patches.ledger

    def hook_init(original: Any) -> Any:
        def hook(adapter: Any, generator: Any) -> None:
            original(adapter, _record_generator(ledger, generator) if ledger.is_on else generator)

        return hook

    patches.replace(generator_data_adapter.GeneratorDataAdapter, "__init__", hook_init, api=GENERATOR)


def _record_generator(ledger: Ledger, generator: Any) -> Iterator[Any]:
    """Yield the batches of `generator` and record the time that it takes for each."""
    # `line_of_function` reads `__code__`, but a generator object stores its code as `gi_code`. Other iterators have no
    # code, so their line is -1 and `time_stage` records nothing.
    function = SimpleNamespace(__code__=getattr(generator, "gi_code", None))
    stage = PythonStage(GENERATOR, ledger.lines.line_of_function(function), "generator")
    end = object()
    while True:
        batch = time_stage(ledger, lambda: stage, next, generator, end)
        if batch is end:
            return
        yield batch
