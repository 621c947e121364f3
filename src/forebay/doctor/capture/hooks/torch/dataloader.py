"""Hooks for DataLoader: waits for batches, and the times of user code that makes batches."""

import random
from collections.abc import Iterator
from functools import partial
from time import perf_counter_ns
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, dataloader
from torch.utils.data._utils import fetch

from forebay.doctor.capture.hooks.torch.call_hooks import Description, TorchHook, TorchHooks
from forebay.doctor.capture.thread_readings import RunnableClock
from forebay.doctor.model.events import EventKind

__all__ = ["hook_data"]

INPUT, ROW, COLLATE = "DataLoader", "Dataset.__getitem__", "collate_fn"  # API names in events
MAX_LEAVES = 64  # of a batch; `_size_of` ignores further leaves
# Transforms of torchvision that make the same row in every epoch, or that only contain other transforms.
_SAME_IN_EVERY_EPOCH = frozenset(
    {"CenterCrop", "Compose", "ConvertImageDtype", "Grayscale", "Normalize", "PILToTensor", "Pad", "Resize"}
    | {"StandardTransform", "ToDtype", "ToImage", "ToPILImage", "ToTensor"}
)
# Lower-case parts of names. Code that uses such a name probably draws random numbers.
_RANDOM_NAMES = ("rand", "jitter", "augment", "choice", "permut", "cutout", "erasing", "mixup")
# Classes of generators of random numbers -> names in captures.
_GENERATORS: dict[type, str] = {
    np.random.Generator: "Generator",
    np.random.RandomState: "RandomState",
    random.Random: "Random",
    torch.Generator: "torch.Generator",
}
MAX_NESTED_DATASETS = 8  # objects: nested datasets and transforms that are examined, and items of a list of them


def hook_data(hooks: TorchHooks) -> None:
    lines = _LoaderLines(hooks)
    hooks.hook(DataLoader, "__init__", "DataLoader(...)", lines.describe_loader)
    hooks.hook(DataLoader, "__iter__", "iter(DataLoader)", lines.describe_iterator)
    hooks.replace(dataloader._BaseDataLoaderIter, "__next__", INPUT, partial(_NextBatchHook, lines=lines))
    for fetcher in (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher):
        hooks.replace(fetcher, "fetch", ROW, _FetchHook)


class _LoaderLines:
    """Describes loaders and their iterators, and remembers the lines that built them."""

    def __init__(self, hooks: TorchHooks) -> None:
        self._lines = hooks.ledger.lines
        self._of_loaders: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._of_iterators: WeakKeyDictionary[Any, int] = WeakKeyDictionary()

    def describe_loader(self, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Description:
        self._of_loaders[args[0]] = self._lines.current_line()
        dataset = getattr(args[0], "dataset", None)
        facts = {"what": "DataLoader", **_settings_of(args[0]), **_describe_data(args[0], dataset)}
        return EventKind.BUILD, 0, facts | self._find_row_line(dataset)

    def describe_iterator(self, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Description:
        line = self._of_loaders.get(args[0], -1)
        if line >= 0:
            self._of_iterators[result] = line
        return EventKind.BUILD, 0, {"what": "iterator", **_settings_of(args[0])}

    def _find_row_line(self, dataset: Any) -> dict[str, int]:
        """Return `rows_at`, the line of the first user function that makes rows, or {}."""
        functions = (_row_function(nested) for nested in _nested_datasets(dataset))
        lines = (self._lines.line_of_function(function) for function in functions)
        return next(({"rows_at": line} for line in lines if line >= 0), {})

    def of_iterator(self, iterator: Any) -> int:
        """Return the index of the line that built an iterator's loader; -1 if unknown."""
        return self._of_iterators.get(iterator, -1)


def _settings_of(loader: Any) -> dict[str, Any]:
    sampler = getattr(loader, "batch_sampler", None)
    return {
        "workers": loader.num_workers,
        "pinned": bool(loader.pin_memory),
        "prefetch": loader.prefetch_factor,
        "persistent": bool(loader.persistent_workers),
        "batch_rows": loader.batch_size or getattr(sampler, "batch_size", None),
    }


def _describe_data(loader: Any, dataset: Any) -> dict[str, Any]:
    """Return details about the rows of a dataset for the BUILD event of its loader.

    These are the number of rows, whether the code of the dataset seems to draw random numbers, and the random number
    generators of the dataset. For a stream, the only detail is whether its worker processes divide the rows. The result
    is empty for any other dataset without a length. Calling `len` rarely adds work to the script, because the sampler
    of the DataLoader has usually called it already.
    """
    if isinstance(dataset, IterableDataset):
        return {"stream": "divided" if loader.worker_init_fn or _divides_rows(dataset) else "whole"}
    try:
        rows = len(dataset)
    except Exception:  # code of the script; it may raise anything
        return {}
    is_random = any(_may_be_random(nested) for nested in _nested_datasets(dataset))
    generators = ", ".join(_generators_of(dataset))
    return {"dataset_rows": rows, "random_rows": is_random} | ({"generators": generators} if generators else {})


def _divides_rows(dataset: Any) -> bool:
    """Whether code of a stream reads `worker_info`, so that its worker processes divide the rows."""
    classes = [owner for nested in _nested_datasets(dataset) for owner in type(nested).__mro__]
    return any("worker_info" in name for owner in classes for each in vars(owner).values() for name in _names_of(each))


def _may_be_random(dataset: Any) -> bool:
    """Whether code of a dataset may draw random numbers, so that its rows change.

    A transform object of an unknown class counts as random.
    """
    function = _row_function(dataset)
    names = [*_names_of(function)]
    names += [name for method in names for name in _names_of(getattr(type(dataset), method, None))]
    transforms = [
        part
        for attribute, value in getattr(dataset, "__dict__", {}).items()
        if "transform" in attribute
        for part in _parts_of(value)
    ]
    names += [name for transform in transforms for name in _names_of(transform)]
    is_known = all(
        hasattr(transform, "__code__") or type(transform).__name__ in _SAME_IN_EVERY_EPOCH for transform in transforms
    )
    return not is_known or any(part in name.lower() for name in names for part in _RANDOM_NAMES)


def _generators_of(dataset: Any) -> Iterator[str]:
    """Yield the random number generators of a dataset, such as "transform.rng: Generator".

    Each worker process gets a copy of these generators, so all workers draw the same numbers.
    """
    pending = [("", dataset)]
    for path, owner in pending:  # the list grows while it is read
        for name, value in _parts_with_names(owner):
            kind = next((kind for base, kind in _GENERATORS.items() if isinstance(value, base)), "")
            if kind:
                yield f"{path}{name}: {kind}"
            elif _may_hold_generators(name, value) and len(pending) < MAX_NESTED_DATASETS:
                pending.append((f"{path}{name}.", value))


def _parts_with_names(owner: Any) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of an object; for short lists and tuples their items, such as `transforms[0]`."""
    for name, value in [*getattr(owner, "__dict__", {}).items()]:
        if isinstance(value, list | tuple) and len(value) <= MAX_NESTED_DATASETS:
            yield from ((f"{name}[{index}]", each) for index, each in enumerate(value))
        else:
            yield name, value


def _may_hold_generators(name: str, value: Any) -> bool:
    """Whether an attribute of a dataset is another dataset or a transform."""
    is_named = name.startswith("dataset") or "transform" in name
    return hasattr(value, "__dict__") and (is_named or callable(value)) and not isinstance(value, type)


def _parts_of(transform: Any, depth: int = 4) -> Iterator[Any]:
    """Yield a transform and the transforms inside it."""
    if transform is None or not depth:
        return
    yield transform
    for attribute in ("transforms", "transform", "target_transform"):
        inner = getattr(transform, attribute, None)
        for part in inner if isinstance(inner, list | tuple) else (inner,):
            yield from _parts_of(part, depth - 1)


def _names_of(function: Any) -> tuple[str, ...]:
    return getattr(getattr(function, "__code__", None), "co_names", ())


class _NextBatchHook(TorchHook):
    """Records the wait for a batch.

    Conversions on the host, while the DataLoader makes the batch, are not recorded separately.
    """

    def __init__(self, original: Any, name: str, hooks: TorchHooks, *, lines: _LoaderLines) -> None:
        super().__init__(original, name, hooks)
        self._lines = lines
        self._clock = RunnableClock()

    def __call__(self, iterator: Any) -> Any:
        hooks = self._hooks
        if not self.is_on or not hooks.ledger.is_on or hooks.thread_state.is_in_input:
            return self._original(iterator)
        hooks.thread_state.is_in_input = True
        try:
            runnable, start = self._clock.read(), perf_counter_ns()
            batch = self._original(iterator)
            end, runnable = perf_counter_ns(), self._clock.read() - runnable
        finally:
            hooks.thread_state.is_in_input = False
        self._record((start, end, min(runnable, end - start)), iterator, batch)
        return batch

    def _record(self, times: tuple[int, int, int], iterator: Any, batch: Any) -> None:
        """Record a wait for a batch.

        `times` are nanoseconds: the start, the end, and how long the thread ran or waited for a core.
        """
        start, end, runnable = times
        with self._hooks.guard(INPUT):
            with torch._C.DisableTorchFunction():
                nbytes, rows = _size_of(batch)
            detail = {"loader": "DataLoader", "workers": iterator._num_workers, "pinned": bool(iterator._pin_memory)}
            detail |= {"prefetch": getattr(iterator, "_prefetch_factor", None), "batch_rows": rows}
            if not iterator._num_workers:  # else other processes make the batch
                detail["runnable"] = runnable / 1e9
            if (line := self._lines.of_iterator(iterator)) >= 0:
                detail["built_at"] = line
            self._hooks.ledger.add(EventKind.INPUT, INPUT, start, end=end, nbytes=nbytes, detail=detail)


class _FetchHook(TorchHook):
    """Records how long the DataLoader makes rows and collates them.

    With workers, other processes do this work, and the hook records nothing.
    """

    def __call__(self, fetcher: Any, index: Any) -> Any:
        if not self.is_on or not self._hooks.ledger.is_on:
            return self._original(fetcher, index)
        collate, times = fetcher.collate_fn, [perf_counter_ns()]

        def timed_collate(rows: Any) -> Any:
            times.append(perf_counter_ns())
            batch = collate(rows)
            times.append(perf_counter_ns())
            return batch

        fetcher.collate_fn = timed_collate
        try:
            batch = self._original(fetcher, index)
        finally:
            fetcher.collate_fn = collate
        self._record(times, fetcher.dataset, collate, len(index) if isinstance(index, list | tuple) else 1)
        return batch

    def _record(self, times: list[int], dataset: Any, collate: Any, row_count: int) -> None:
        """Record the making and the collation of rows.

        `times` are nanoseconds: the start, the end of making rows, and the end of the collation.
        """
        with self._hooks.guard(ROW):
            start, rows_end, end = times
            write = self._hooks.ledger.write
            row_functions = (_row_function(nested) for nested in _nested_datasets(dataset))
            detail = {"what": "row", "count": row_count}
            write((EventKind.PREPARE, ROW, self._find_line(*row_functions)), start, rows_end, detail=detail)
            collate_function = getattr(collate, "func", collate)  # the function inside a partial
            detail = {"what": "collate", "count": row_count}
            write((EventKind.PREPARE, COLLATE, self._find_line(collate_function)), rows_end, end, detail=detail)

    def _find_line(self, *functions: Any) -> int:
        """Return the line index of the first user function.

        If there is none, return the index of the line of the script that requested the batch.
        """
        lines = self._hooks.ledger.lines
        user_lines = (lines.line_of_function(function) for function in functions)
        line = next((line for line in user_lines if line >= 0), None)
        return lines.current_line() if line is None else line


def _nested_datasets(dataset: Any) -> Iterator[Any]:
    """Yield a dataset and the datasets that it wraps, at most MAX_NESTED_DATASETS.

    Only lists and tuples of datasets are followed: iterating over anything else may change the state of the script.
    """
    pending = [dataset]
    for _ in range(MAX_NESTED_DATASETS):
        if not pending:
            return
        yield (nested := pending.pop(0))
        inner = getattr(nested, "dataset", None)
        inner_datasets = getattr(nested, "datasets", None)
        pending += [inner] if inner is not None else inner_datasets if isinstance(inner_datasets, list | tuple) else []


def _row_function(dataset: Any) -> Any:
    """Return the method that makes the rows of a dataset."""
    dataset_class = type(dataset)
    if isinstance(dataset, IterableDataset):
        return dataset_class.__iter__
    return getattr(dataset_class, "__getitems__", None) or getattr(dataset_class, "__getitem__", None)


def _size_of(batch: Any) -> tuple[int, int | None]:
    """Return the bytes of the first MAX_LEAVES leaves, and the number of rows or None."""
    leaves = [leaf for leaf, _ in zip(_leaves_of(batch), range(MAX_LEAVES), strict=False)]
    rows = next((len(leaf) for leaf in leaves if len(leaf.shape)), None)
    return sum(leaf.nbytes for leaf in leaves), rows


def _leaves_of(batch: Any) -> Iterator[Any]:
    if isinstance(batch, torch.Tensor | np.ndarray):
        yield batch
    elif isinstance(batch, dict):
        for value in batch.values():
            yield from _leaves_of(value)
    elif isinstance(batch, list | tuple):
        for value in batch:
            yield from _leaves_of(value)
