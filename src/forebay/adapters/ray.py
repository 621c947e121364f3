"""A Ray Dataset as the stream a feed reads.

>>> pipeline = from_dataset(ray.data.read_parquet("s3://..."))  # doctest: +SKIP
>>> feed = pipeline.shuffle(seed=0, window="64MB").batch(256).feed("torch")  # doctest: +SKIP

Ray Data reads and maps on its own workers; the feed takes its blocks as they come, cuts them into batches, mixes them
in a window where asked to, and puts them into its slots.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from ray.data import Dataset

from forebay.core.spec import Array, ArraySpec, Structure, flatten
from forebay.errors import PipelineError, SourceError, StateError
from forebay.pipeline.pipeline import Pipeline

__all__ = ["DatasetStream", "from_dataset"]

PEEK_ROWS = 1


def from_dataset(dataset: Dataset, *, order: str = "kept") -> Pipeline:
    """Feed the rows of a Ray Dataset.

    With `order="kept"` the dataset is told to keep the order of its blocks, so that every pass gives the same rows
    in the same order, as long as its own steps do (`random_shuffle` needs a seed); a feed then resumes exactly, by
    reading again and passing over what was received. `order="any"` takes blocks as they are ready: faster where they
    differ in cost, but a feed cannot be resumed within an epoch, and says so.
    """
    if order not in ("kept", "any"):
        raise PipelineError(f"from_dataset(order={order!r}) is unknown: choose 'kept' or 'any'.")
    if not isinstance(dataset, Dataset):
        raise PipelineError(f"from_dataset() needs a ray.data.Dataset, got {type(dataset).__name__}.")
    return Pipeline(DatasetStream(dataset, kept=order == "kept"))


class DatasetStream:
    """The rows of a dataset, block after block; every pass runs the dataset anew."""

    needs_cluster = True  # its own steps run there, beside the maps of a feed

    def __init__(self, dataset: Dataset, *, kept: bool) -> None:
        self._dataset, self._kept = dataset, kept
        if kept:
            dataset.context.execution_options.preserve_order = True
        leaves, self.structure = flatten(self._first(PEEK_ROWS))
        self.specs = tuple(ArraySpec(leaf.shape[1:], leaf.dtype) for leaf in leaves)
        for spec, name in zip(self.specs, self.structure.paths, strict=True):
            spec.check(name)

    def start(self, epoch: int, state: dict[str, Any] | None = None) -> "DatasetReader":
        blocks = iter(self._dataset.iter_batches(batch_size=None, batch_format="numpy"))
        return DatasetReader(blocks, self.specs, self.structure, kept=self._kept)

    def sample(self, rows: int) -> list[list[Array]]:
        leaves = self.structure.flatten_like(self._first(rows))
        return [list(row) for row in zip(*leaves, strict=True)]

    def describe(self) -> tuple[Any, ...]:
        return ("ray dataset", *self.structure.paths)

    def close(self) -> None:
        """The dataset is the user's: nothing to give back."""

    def _first(self, rows: int) -> dict[str, Any]:
        found: dict[str, Any] = self._dataset.take_batch(rows, batch_format="numpy")
        if not found:
            raise SourceError("the dataset has no rows: there is nothing to feed.")
        return found


class DatasetReader:
    """One pass: what is left of the block that was taken last, and those to come."""

    def __init__(
        self, blocks: Iterator[dict[str, Any]], specs: Sequence[ArraySpec], structure: Structure, *, kept: bool
    ) -> None:
        self._blocks, self._specs, self._structure, self._kept = blocks, specs, structure, kept
        self._block: list[Array] = []
        self._taken = 0  # rows of it that were read

    def read(self, out: Sequence[Array]) -> int:
        done, wanted = 0, len(out[0])
        while done < wanted and self._left():
            count = min(wanted - done, self._left())
            for target, leaf in zip(out, self._block, strict=True):
                target[done : done + count] = leaf[self._taken : self._taken + count]
            done, self._taken = done + count, self._taken + count
        return done

    def skip(self, rows: int) -> int:
        if rows and not self._kept:
            raise StateError(
                "rows of this Ray Dataset come in any order, so those received cannot be passed over: resume at an "
                "epoch's beginning, or use from_dataset(dataset, order='kept')."
            )
        done = 0
        while done < rows and self._left():
            count = min(rows - done, self._left())
            done, self._taken = done + count, self._taken + count
        return done

    def state_dict(self) -> None:
        """None of its own: a pass is read again up to where it was."""

    def close(self) -> None:
        self._block, self._blocks = [], iter(())

    def _left(self) -> int:
        """Rows of the block at hand, which is the next one where all were read; none at the end."""
        while not self._block or self._taken == len(self._block[0]):
            block = next(self._blocks, None)
            if block is None:
                return 0
            self._block, self._taken = self._checked(block), 0
        return len(self._block[0]) - self._taken

    def _checked(self, block: dict[str, Any]) -> list[Array]:
        leaves = [np.asarray(leaf) for leaf in self._structure.flatten_like(block)]
        for leaf, spec, name in zip(leaves, self._specs, self._structure.paths, strict=True):
            if leaf.dtype != spec.dtype or leaf.shape[1:] != spec.shape:
                raise SourceError(
                    f"{name!r} is {ArraySpec(leaf.shape[1:], leaf.dtype)} in one block and {spec} in the first: make "
                    "rows alike with dataset.map_batches()."
                )
        return leaves
