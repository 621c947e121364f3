"""Ready-made batches from somebody else's loader: tf.data, DataLoader, Grain, a list, a generator."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from forebay.errors import SourceError, SpecError
from forebay.spec import Array, ArraySpec, Structure, Tree, flatten

__all__ = ["BatchReader", "BatchStream"]


class BatchStream:
    """Batches as they come; each may have its own number of rows. Every pass iterates the loader anew."""

    def __init__(self, loader: Iterable[Tree] | Callable[[], Iterable[Tree]]) -> None:
        if not callable(loader) and not hasattr(loader, "__iter__"):
            raise SpecError(f"from_batches() needs an iterable of batches, got {type(loader).__name__}.")
        self._loader = loader
        self._once = iter(loader) is loader if hasattr(loader, "__iter__") else False
        self._started = False
        self._ahead: tuple[Iterator[Tree], Tree] | None = self._peek()
        leaves, self.structure = _as_leaves(self._ahead[1])
        self.specs = tuple(ArraySpec(leaf.shape[1:], leaf.dtype) for leaf in leaves)
        self.first_rows = len(leaves[0])
        for spec, name in zip(self.specs, self.structure.paths, strict=True):
            spec.check(name)

    @property
    def length(self) -> int | None:
        """Batches in a pass, where the loader knows."""
        try:
            return len(self._loader)  # type: ignore[arg-type]  # a loader without a length says so
        except TypeError:
            return None

    def sample(self) -> list[Array]:
        """The first batch, to trace maps with; it is given again when the pass is read."""
        assert self._ahead is not None
        return [np.array(leaf) for leaf in _as_leaves(self._ahead[1])[0]]

    def start(self, epoch: int, state: dict[str, Any] | None = None) -> "BatchReader":
        if self._ahead is not None:
            (iterator, first), self._ahead = self._ahead, None
            return BatchReader(self, iterator, first)
        if self._once:
            raise SourceError(
                "the loader is an iterator and was read to its end: it gives one epoch only. "
                "Pass the iterable itself, or a function that makes a new iterator, to go on."
            )
        return BatchReader(self, self._iterate(), None)

    def close(self) -> None:
        self._ahead = None

    def _iterate(self) -> Iterator[Tree]:
        # Frameworks' loaders may be callable too (a Keras PyDataset is not), so being iterable counts first.
        return iter(self._loader if hasattr(self._loader, "__iter__") else self._loader())

    def _peek(self) -> tuple[Iterator[Tree], Tree]:
        iterator = self._iterate()
        try:
            return iterator, next(iterator)
        except StopIteration:
            raise SourceError("the loader gave no batch: there is nothing to feed.") from None


class BatchReader:
    """One pass over a loader's batches."""

    def __init__(self, stream: BatchStream, iterator: Iterator[Tree], first: Tree | None) -> None:
        self._stream, self._iterator, self._first = stream, iterator, first
        self._batch = 0

    def next_batch(self) -> list[Array] | None:
        """The next batch's leaves as NumPy arrays over the loader's own memory; None at the end."""
        tree, self._first = self._first, None
        if tree is None:
            tree = next(self._iterator, None)
        if tree is None:
            return None
        leaves = self._checked(tree)
        self._batch += 1
        return leaves

    def skip(self, batches: int) -> int:
        return sum(1 for _ in range(batches) if self.next_batch() is not None)

    def close(self) -> None:
        close = getattr(self._iterator, "close", None)
        if close is not None:
            close()

    def _checked(self, tree: Tree) -> list[Array]:
        leaves, structure = _as_leaves(tree)
        if structure.paths != self._stream.structure.paths:
            raise SpecError(
                f"batch {self._batch} has the fields {structure.paths}, the first one {self._stream.structure.paths}."
            )
        for leaf, spec, name in zip(leaves, self._stream.specs, structure.paths, strict=True):
            if leaf.shape[1:] != spec.shape or leaf.dtype != spec.dtype:
                got = ArraySpec(leaf.shape[1:], leaf.dtype)
                raise SpecError(
                    f"batch {self._batch} has rows of {got} in {name!r}, the first one {spec}: batches must be alike."
                )
        return leaves


def _as_leaves(tree: Tree) -> tuple[list[Array], Structure]:
    leaves, structure = flatten(tree)
    arrays = [_as_numpy(leaf) for leaf in leaves]
    rows = {array.shape[0] if array.ndim else None for array in arrays}
    if len(rows) != 1 or None in rows:
        shapes = {name: array.shape for name, array in zip(structure.paths, arrays, strict=True)}
        raise SpecError(f"a batch must have one number of rows in all its fields, got shapes {shapes}.")
    return arrays, structure


def _as_numpy(leaf: Any) -> Array:
    """Any framework's CPU tensor as a NumPy array, without a copy where it allows that."""
    detach = getattr(leaf, "detach", None)  # a torch tensor that carries gradients refuses __array__
    return np.asarray(leaf if detach is None else detach())
