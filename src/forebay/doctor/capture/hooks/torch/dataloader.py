"""PyTorch's DataLoader: how long the loop waits for a batch, and what of that is the user's own code."""

from collections.abc import Iterator
from functools import partial
from time import perf_counter_ns
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, dataloader
from torch.utils.data._utils import fetch

from forebay.doctor.capture.hooks.torch.watcher import Found, Hook, Watcher
from forebay.doctor.model.events import Kind

__all__ = ["watch_data"]

INPUT, ROW, COLLATE = "DataLoader", "Dataset.__getitem__", "collate_fn"
MOST_LEAVES = 64  # of a batch; whoever has more has told enough
DEEPEST = 8  # datasets inside datasets


def watch_data(watcher: Watcher) -> None:
    watcher.watch(DataLoader, "__init__", "DataLoader(...)", _made)
    watcher.watch(DataLoader, "__iter__", "iter(DataLoader)", _begun)
    watcher.replace(dataloader._BaseDataLoaderIter, "__next__", INPUT, _NextBatch)
    for fetcher in (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher):
        watcher.replace(fetcher, "fetch", ROW, _Fetch)


def _made(result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Found:
    return Kind.BUILD, 0, {"what": "DataLoader", **_settings(args[0])}


def _begun(result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Found:
    return Kind.BUILD, 0, {"what": "iterator", **_settings(args[0])}


def _settings(loader: Any) -> dict[str, Any]:
    sampler = getattr(loader, "batch_sampler", None)
    return {
        "workers": loader.num_workers,
        "pinned": bool(loader.pin_memory),
        "prefetch": loader.prefetch_factor,
        "persistent": bool(loader.persistent_workers),
        "batch_rows": loader.batch_size or getattr(sampler, "batch_size", None),
    }


class _NextBatch(Hook):
    """The wait for a batch. What the loader does meanwhile on the host is part of it."""

    def __call__(self, iterator: Any) -> Any:
        watcher = self._watcher
        if not self.on or not watcher.ledger.on or watcher.thread.preparing:
            return self._original(iterator)
        watcher.thread.preparing = True
        try:
            start = perf_counter_ns()
            batch = self._original(iterator)
            end = perf_counter_ns()
        finally:
            watcher.thread.preparing = False
        self._write(start, end, iterator, batch)
        return batch

    def _write(self, start: int, end: int, iterator: Any, batch: Any) -> None:
        with self._watcher.quietly(INPUT):
            with torch._C.DisableTorchFunction():
                nbytes, rows = _size_of(batch)
            detail = {"loader": "DataLoader", "workers": iterator._num_workers, "pinned": bool(iterator._pin_memory)}
            detail |= {"prefetch": getattr(iterator, "_prefetch_factor", None), "batch_rows": rows}
            self._watcher.ledger.add(Kind.INPUT, INPUT, start, end=end, nbytes=nbytes, detail=detail)


class _Fetch(Hook):
    """The rows of one batch, and their collation, where the loader has no workers."""

    def __call__(self, fetcher: Any, index: Any) -> Any:
        if not self.on or not self._watcher.ledger.on:
            return self._original(fetcher, index)
        collate, marks = fetcher.collate_fn, [perf_counter_ns()]

        def timed(rows: Any) -> Any:
            marks.append(perf_counter_ns())
            batch = collate(rows)
            marks.append(perf_counter_ns())
            return batch

        fetcher.collate_fn = timed
        try:
            batch = self._original(fetcher, index)
        finally:
            fetcher.collate_fn = collate
        self._write(marks, fetcher.dataset, collate, len(index) if isinstance(index, list | tuple) else 1)
        return batch

    def _write(self, marks: list[int], dataset: Any, collate: Any, rows: int) -> None:
        with self._watcher.quietly(ROW):
            start, rows_end, end = marks
            add = partial(self._watcher.ledger.add, Kind.PREPARE)
            readers = (_reader(each) for each in _nested(dataset))
            add(ROW, start, end=rows_end, detail={"what": "row", "count": rows}, line=self._line(*readers))
            function = getattr(collate, "func", collate)  # of a partial
            add(COLLATE, rows_end, end=end, detail={"what": "collate", "count": rows}, line=self._line(function))

    def _line(self, *functions: Any) -> int | None:
        """Where the first of them that is the user's is defined; where none is, it is the loop's own line."""
        lines = (self._watcher.ledger.lines.of_code(function) for function in functions)
        return next((line for line in lines if line >= 0), None)


def _nested(dataset: Any) -> Iterator[Any]:
    """A dataset, and those it takes its rows from."""
    for _ in range(DEEPEST):
        yield dataset
        inner = getattr(dataset, "dataset", None)
        if inner is None:
            inner = next(iter(getattr(dataset, "datasets", ())), None)
        if inner is None:
            return
        dataset = inner


def _reader(dataset: Any) -> Any:
    """What makes its rows."""
    kind = type(dataset)
    if isinstance(dataset, IterableDataset):
        return kind.__iter__
    return getattr(kind, "__getitems__", None) or getattr(kind, "__getitem__", None)


def _size_of(batch: Any) -> tuple[int, int | None]:
    """Bytes of a batch, and how many rows its first tensor has."""
    leaves = [leaf for leaf, _ in zip(_leaves(batch), range(MOST_LEAVES), strict=False)]
    rows = next((len(leaf) for leaf in leaves if len(leaf.shape)), None)
    return sum(leaf.nbytes for leaf in leaves), rows


def _leaves(batch: Any) -> Iterator[Any]:
    if isinstance(batch, torch.Tensor | np.ndarray):
        yield batch
    elif isinstance(batch, dict):
        for value in batch.values():
            yield from _leaves(value)
    elif isinstance(batch, list | tuple):
        for value in batch:
            yield from _leaves(value)
