"""Data as Keras takes it: which loader a `fit` has, its wait where that is Python's, and the user's own part of it."""

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

from forebay.doctor.capture.hooks.calls import Call, quietly, watch_call, write
from forebay.doctor.capture.hooks.input_stages import Part, loaders, prepare
from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.capture.patches import Patches
from forebay.doctor.model.events import Kind

__all__ = ["watch_data"]

INPUT, ROW, GENERATOR = "keras input", "PyDataset.__getitem__", "generator"
_LOADERS = {
    "ArrayDataAdapter": "arrays",
    "TFDatasetAdapter": "tf.data",
    "GeneratorDataAdapter": "generator",
    "PyDatasetAdapter": "generator",
}
_ADAPTERS = (
    (array_data_adapter, "ArrayDataAdapter"),
    (tf_dataset_adapter, "TFDatasetAdapter"),
    (generator_data_adapter, "GeneratorDataAdapter"),
    (py_dataset_adapter, "PyDatasetAdapter"),
)


def watch_data(patches: Patches) -> None:
    for module, name in _ADAPTERS:
        adapter = getattr(module, name)
        watch_call(patches, adapter, "get_tf_dataset", api="Model.fit", then=_tagged, inner="seen")
    _watch_waits(patches)
    _watch_rows(patches)
    _watch_generators(patches)


def _tagged(call: Call) -> None:
    loaders.tell(call.result, **_facts(call.args[0]))


def _facts(adapter: Any) -> dict[str, Any]:
    """As an input event tells them."""
    facts: dict[str, Any] = {"loader": _LOADERS.get(type(adapter).__name__, "generator")}
    rows, dataset = getattr(adapter, "batch_size", None), getattr(adapter, "py_dataset", None)
    facts |= {"batch_rows": rows} if rows else {}
    return facts | ({"workers": dataset.workers} if dataset is not None and dataset.workers > 1 else {})


def _watch_waits(patches: Patches) -> None:
    """Batches for JAX are taken in Python."""
    trainer = sys.modules.get("keras.src.backend.jax.trainer")
    if keras.backend.backend() == "jax" and trainer is not None:
        make = partial(_timed, patches.ledger)
        patches.replace(trainer.JAXEpochIterator, "_get_iterator", make, api=INPUT)


def _timed(ledger: Ledger, original: Any) -> Any:
    def hook(epoch: Any) -> Any:
        batches = iter(original(epoch))
        return _waiting(ledger, batches, _facts(epoch.data_adapter)) if ledger.on else batches

    return hook


def _waiting(ledger: Ledger, batches: Iterator[Any], facts: dict[str, Any]) -> Iterator[Any]:
    """The same batches, with each wait written down."""
    end = object()
    while True:
        start = perf_counter_ns()
        batch = next(batches, end)
        if batch is end:
            return
        if ledger.on:
            quietly(ledger, INPUT, _came, ledger, Call(start, perf_counter_ns(), batch, (), {}), facts)
        yield batch


def _came(ledger: Ledger, call: Call, facts: dict[str, Any]) -> None:
    nbytes = sum(getattr(array, "nbytes", 0) for array in keras.tree.flatten(call.result))
    write(ledger, Kind.INPUT, f"keras {facts['loader']}", call, nbytes=nbytes, detail=facts)


def _watch_rows(patches: Patches) -> None:
    """The class of a PyDataset is the user's: it is watched from when the first of its objects is given to Keras."""
    met: set[type] = set()

    def given(call: Call) -> None:
        kind = type(call.args[0].py_dataset)
        if kind not in met:
            met.add(kind)
            patches.replace(kind, "__getitem__", partial(_row, patches.ledger), api=ROW)

    watch_call(patches, py_dataset_adapter.PyDatasetAdapter, "__init__", api=ROW, then=given)


def _row(ledger: Ledger, original: Any) -> Any:
    part = Part(ROW, ledger.lines.of_code(original), "row")

    def hook(*args: Any) -> Any:
        return prepare(ledger, lambda: part, original, *args)

    return hook


def _watch_generators(patches: Patches) -> None:
    ledger = patches.ledger

    def make(original: Any) -> Any:
        def hook(adapter: Any, generator: Any) -> None:
            original(adapter, _watched(ledger, generator) if ledger.on else generator)

        return hook

    patches.replace(generator_data_adapter.GeneratorDataAdapter, "__init__", make, api=GENERATOR)


def _watched(ledger: Ledger, generator: Any) -> Iterator[Any]:
    """The same generator, with the making of each batch written down."""
    code = SimpleNamespace(__code__=getattr(generator, "gi_code", None))
    part = Part(GENERATOR, ledger.lines.of_code(code), "generator")
    end = object()
    while True:
        batch = prepare(ledger, lambda: part, next, generator, end)
        if batch is end:
            return
        yield batch
