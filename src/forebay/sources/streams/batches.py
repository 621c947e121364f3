"""Ready-made batches from somebody else's loader: tf.data, DataLoader, Grain, a list, a generator."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import numpy as np

from forebay.core.source import PipelineInput
from forebay.core.spec import Array, ArraySpec, Structure, Tree, flatten
from forebay.errors import SourceError, SpecError

__all__ = ["BatchReader", "BatchStream"]


class BatchStream(PipelineInput):
    """Batches as they come; each may have its own number of rows. Every pass iterates the loader anew."""

    def __init__(self, loader: Iterable[Tree] | Callable[[], Iterable[Tree]]) -> None:
        if not callable(loader) and not hasattr(loader, "__iter__"):
            raise SpecError(f"from_batches() needs an iterable of batches, got {type(loader).__name__}.")
        self._loader, self._once = loader, False
        self._ahead: tuple[Iterator[Tree], Tree] | None = None  # a pass begun to see its first batch, and that batch
        leaves, self.structure = _as_leaves(self._peek())
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
        return [np.array(leaf) for leaf in _as_leaves(self._peek())[0]]

    def start(self, epoch: int, state: dict[str, Any] | None = None) -> "BatchReader":
        if self._ahead is not None:
            (iterator, first), self._ahead = self._ahead, None
            return BatchReader(self, chain([first], iterator), iterator)
        iterator = self._iterate()
        return BatchReader(self, iterator, iterator)

    def close(self) -> None:
        self._ahead = None

    def _iterate(self) -> Iterator[Tree]:
        if self._once:
            raise SourceError(
                "the loader is an iterator and was read already: it gives one epoch only. "
                "Pass the iterable itself, or a function that makes a new iterator, to go on."
            )
        # Frameworks' loaders may be callable too, so being iterable counts first.
        iterator = iter(self._loader if hasattr(self._loader, "__iter__") else self._loader())
        self._once = iterator is self._loader
        return iterator

    def _peek(self) -> Tree:
        """The first batch of the next pass; it is given again when the pass is read."""
        if self._ahead is None:
            iterator = self._iterate()
            try:
                self._ahead = iterator, next(iterator)
            except StopIteration:
                raise SourceError("the loader gave no batch: there is nothing to feed.") from None
        return self._ahead[1]


_END = object()


class BatchReader:
    """One pass over a loader's batches."""

    def __init__(self, stream: BatchStream, batches: Iterator[Tree], iterator: Iterator[Tree]) -> None:
        self._stream, self._batches, self._iterator = stream, batches, iterator
        self._batch = 0

    def next_batch(self) -> list[Array] | None:
        """The next batch's leaves as NumPy arrays over the loader's own memory; None at the end."""
        tree = next(self._batches, _END)
        if tree is _END:
            return None
        leaves = self._checked(tree)
        self._batch += 1
        return leaves

    def skip(self, batches: int) -> int:
        return sum(1 for _ in range(batches) if self.next_batch() is not None)

    def state_dict(self) -> None:
        """Return None: a loader has no state of its own."""
        return

    def close(self) -> None:
        close = getattr(self._iterator, "close", None)
        if close is not None:
            close()

    def _checked(self, tree: Tree) -> list[Array]:
        structure = self._stream.structure
        try:
            leaves, _ = _as_leaves(structure.unflatten(structure.flatten_like(tree)))
        except SpecError as error:
            raise SpecError(f"batch {self._batch} is not like the first one: {error}") from None
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
        raise SpecError(
            f"a batch must have one number of rows in all its fields, got shapes {shapes}. If these are single rows, "
            "batch them where they are made, or pass a function that makes them to from_generator()."
        )
    return arrays, structure


def _as_numpy(leaf: Any) -> Array:
    """Any framework's CPU tensor as a NumPy array, without a copy where it allows that."""
    detach = getattr(leaf, "detach", None)  # a torch tensor that carries gradients refuses __array__
    try:
        return np.asarray(leaf if detach is None else detach())
    except (TypeError, ValueError) as error:
        raise SpecError(
            f"a batch holds a {type(leaf).__name__} that NumPy cannot take as an array ({error}): convert it where "
            "batches are made, for example to float32, or to rows of one length."
        ) from error
