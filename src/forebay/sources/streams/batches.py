"""Ready-made batches from another loader: tf.data, DataLoader, Grain, a list or a generator."""

import logging
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import numpy as np

from forebay.core.source import PipelineInput
from forebay.core.spec import Array, ArraySpec, Structure, Tree, flatten
from forebay.errors import SourceError, SpecError

__all__ = ["BatchReader", "BatchStream"]

_log = logging.getLogger(__name__)


class BatchStream(PipelineInput):
    """The batches of a loader.

    They may differ in their number of rows. Every pass iterates the loader again.
    """

    def __init__(self, loader: Iterable[Tree] | Callable[[], Iterable[Tree]]) -> None:
        if not callable(loader) and not hasattr(loader, "__iter__"):
            raise SpecError(f"from_batches() got {type(loader).__name__}. Pass an iterable of batches.")
        self._loader = loader
        self._is_consumed = False  # True once a pass has begun over a loader that is an iterator
        # The iterator of a pass whose first batch was read in advance, and this batch.
        self._peeked_pass: tuple[Iterator[Tree], Tree] | None = None
        leaves, self.structure = _as_leaves(self._peek())
        self.specs = tuple(ArraySpec(leaf.shape[1:], leaf.dtype) for leaf in leaves)
        self.first_batch_rows = len(leaves[0])
        for spec, name in zip(self.specs, self.structure.paths, strict=True):
            spec.check(name)

    @property
    def length(self) -> int | None:
        """Number of batches in a pass; None if the loader has no length."""
        try:
            return len(self._loader)  # type: ignore[arg-type]  # raises TypeError if there is no length
        except TypeError:
            return None

    def sample(self) -> list[Array]:
        """Return a copy of the first batch, to infer specs.

        The next pass still yields this batch.
        """
        return [np.array(leaf) for leaf in _as_leaves(self._peek())[0]]

    def start(self, epoch: int, state: dict[str, Any] | None = None) -> "BatchReader":
        if self._peeked_pass is not None:
            (iterator, first), self._peeked_pass = self._peeked_pass, None
            return BatchReader(self, chain([first], iterator), iterator)
        iterator = self._iterate()
        return BatchReader(self, iterator, iterator)

    def close(self) -> None:
        self._peeked_pass = None

    def _iterate(self) -> Iterator[Tree]:
        if self._is_consumed:
            raise SourceError(
                "the loader is an iterator and was already read: it has only one epoch. "
                "Pass the iterable itself, or a function that makes a new iterator."
            )
        # Iterate a loader that is both iterable and callable, as some loaders of frameworks are; do not call it.
        iterator = iter(self._loader if hasattr(self._loader, "__iter__") else self._loader())
        self._is_consumed = iterator is self._loader
        return iterator

    def _peek(self) -> Tree:
        """Return the first batch of the next pass, which still yields this batch."""
        if self._peeked_pass is None:
            iterator = self._iterate()
            try:
                self._peeked_pass = iterator, next(iterator)
            except StopIteration:
                raise SourceError("the loader yielded no batch. Pass a loader with at least one batch.") from None
        return self._peeked_pass[1]


_END = object()


class BatchReader:
    """One pass over the batches of a loader.

    `batches` yields all batches of the pass. `close()` closes `iterator`, the iterator of the loader.
    """

    def __init__(self, stream: BatchStream, batches: Iterator[Tree], iterator: Iterator[Tree]) -> None:
        self._stream, self._batches, self._iterator = stream, batches, iterator
        self._batch_number = 0

    def next_batch(self) -> list[Array] | None:
        """Return the leaves of the next batch, or None at the end.

        The arrays share the memory of the loader's batch.
        """
        tree = next(self._batches, _END)
        if tree is _END:
            self._warn_if_short()
            return None
        leaves = self._validate_batch(tree)
        self._batch_number += 1
        return leaves

    def skip(self, batches: int) -> int:
        return sum(1 for _ in range(batches) if self.next_batch() is not None)

    def state_dict(self) -> None:
        """Return None, because a resumed feed reads the batches again and skips them."""
        return

    def close(self) -> None:
        close = getattr(self._iterator, "close", None)  # generators have it, other iterators may not
        if close is not None:
            close()

    def _warn_if_short(self) -> None:
        """Warn if the loader has ended before its length.

        Python cannot tell the end of an iterator from a StopIteration that a function inside the loader raises.
        """
        length = self._stream.length
        if length is not None and self._batch_number < length:
            _log.warning(
                "the loader ended after %d batches, but its length is %d. If a dataset or a collate function raised "
                "StopIteration, batches are lost: raise another error there.",
                self._batch_number,
                length,
            )

    def _validate_batch(self, tree: Tree) -> list[Array]:
        """Return the leaves of a batch. Raise SpecError if they do not match the specs."""
        structure, differs = self._stream.structure, f"batch {self._batch_number} differs from the first one"
        try:
            tree = structure.unflatten(structure.flatten_like(tree))
        except SpecError as error:
            raise SpecError(f"{differs}: {error} Give all batches the same fields.") from None
        try:
            leaves, _ = _as_leaves(tree)
        except SpecError as error:
            raise SpecError(f"{differs}: {error}") from None
        for leaf, spec, name in zip(leaves, self._stream.specs, structure.paths, strict=True):
            if leaf.shape[1:] != spec.shape or leaf.dtype != spec.dtype:
                got = ArraySpec(leaf.shape[1:], leaf.dtype)
                raise SpecError(
                    f"batch {self._batch_number} has rows of {got} in {name!r}, the first one has {spec}. "
                    "Give all batches one row shape and dtype."
                )
        return leaves


def _as_leaves(tree: Tree) -> tuple[list[Array], Structure]:
    """Return the leaves of a batch as arrays, and the structure.

    Raise SpecError if the arrays differ in their number of rows, or if an array has no axis of rows.
    """
    leaves, structure = flatten(tree)
    arrays = [_as_numpy(leaf) for leaf in leaves]
    rows = {array.shape[0] if array.ndim else None for array in arrays}
    if len(rows) != 1 or None in rows:
        shapes = {name: array.shape for name, array in zip(structure.paths, arrays, strict=True)}
        raise SpecError(
            f"the fields of a batch must have the same number of rows, but their shapes are {shapes}. If these are "
            "single rows, batch them in the loader, or pass a function that yields them to from_generator()."
        )
    return arrays, structure


def _as_numpy(leaf: Any) -> Array:
    """Convert a CPU tensor to a NumPy array, without a copy if possible."""
    detach = getattr(leaf, "detach", None)  # NumPy cannot convert a torch tensor with gradients
    try:
        return np.asarray(leaf if detach is None else detach())
    except (TypeError, ValueError) as error:
        raise SpecError(
            f"NumPy cannot convert a {type(leaf).__name__} in a batch to an array ({error}). Convert it in the "
            "loader, for example to float32, or to rows of one length."
        ) from error
