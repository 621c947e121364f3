"""`from_dataset`: a pipeline that reads the rows of a Ray Dataset as a stream.

Ray Data reads and maps the rows on its own workers. It returns them in blocks, which are batches of any length. The
feed makes its own batches of these rows in slots. If the pipeline has a shuffle, the feed mixes the rows of a window
first.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from ray.data import Dataset

from forebay.core.source import AbstractStream
from forebay.core.spec import Array, ArraySpec, Structure, flatten
from forebay.errors import PipelineError, SourceError, StateError
from forebay.pipeline.pipeline import Pipeline

__all__ = ["DatasetStream", "from_dataset"]

SPEC_ROWS = 1  # rows that Forebay reads to infer the specs


def from_dataset(dataset: Dataset, *, order: str = "kept") -> Pipeline:
    """Return a pipeline of the rows of a Ray Dataset.

    With `order="kept"`, Ray preserves the order of the blocks. Every pass then returns the same rows in the same order,
    if the dataset's own operations are deterministic (`random_shuffle` needs a seed). A resumed feed reads the dataset
    again, skips the rows that were received, and continues with the next row.

    With `order="any"`, the feed takes each block as soon as it is ready. This is faster if some blocks take longer than
    others. However, a feed then cannot resume in the middle of an epoch: it raises StateError.

    Args:
        dataset: The Ray Dataset, such as `ray.data.read_parquet("s3://bucket/train")`.
        order: Whether Ray preserves the order of the blocks: `"kept"` or `"any"`.

    Examples:
        >>> import ray
        >>> context = ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
        >>> with from_dataset(ray.data.range(6)).batch(4).feed("numpy") as feed:
        ...     [batch["id"].tolist() for batch in feed]
        [[0, 1, 2, 3], [4, 5]]
        >>> ray.shutdown()
    """
    if order not in ("kept", "any"):
        raise PipelineError(f"from_dataset(order={order!r}) is unknown. Choose 'kept' or 'any'.")
    if not isinstance(dataset, Dataset):
        raise PipelineError(f"from_dataset() got an object of type {type(dataset).__name__}. Pass a ray.data.Dataset.")
    return Pipeline(DatasetStream(dataset, kept=order == "kept"))


class DatasetStream(AbstractStream):
    """Reads the rows of a Ray Dataset in sequence. Every pass executes the dataset again."""

    needs_cluster = True  # the dataset's own operations run on the Ray cluster

    def __init__(self, dataset: Dataset, *, kept: bool) -> None:
        """With `kept`, set the option of the dataset that preserves the order of blocks."""
        self._dataset, self._keeps_order = dataset, kept
        if kept:
            dataset.context.execution_options.preserve_order = True
        leaves, self.structure = flatten(self._first_rows(SPEC_ROWS))
        self.specs = tuple(ArraySpec(leaf.shape[1:], leaf.dtype) for leaf in leaves)
        for spec, name in zip(self.specs, self.structure.paths, strict=True):
            spec.check(name)

    def start(self, epoch: int, state: dict[str, Any] | None = None) -> "DatasetReader":
        blocks = iter(self._dataset.iter_batches(batch_size=None, batch_format="numpy"))
        return DatasetReader(blocks, self.specs, self.structure, keeps_order=self._keeps_order)

    def sample(self, rows: int) -> list[list[Array]]:
        leaves = self.structure.flatten_like(self._first_rows(rows))
        return [list(row) for row in zip(*leaves, strict=True)]

    def describe(self) -> tuple[Any, ...]:
        return ("ray dataset", *self.structure.paths)

    def close(self) -> None:
        """Do nothing, because the user owns the dataset."""

    def _first_rows(self, rows: int) -> dict[str, Any]:
        rows_by_field: dict[str, Any] = self._dataset.take_batch(rows, batch_format="numpy")
        if not rows_by_field:
            raise SourceError("the Ray Dataset has no rows. Pass a dataset with at least one row.")
        return rows_by_field


class DatasetReader:
    """Reads the rows of one pass, block by block."""

    def __init__(
        self, blocks: Iterator[dict[str, Any]], specs: Sequence[ArraySpec], structure: Structure, *, keeps_order: bool
    ) -> None:
        self._blocks, self._specs, self._structure, self._keeps_order = blocks, specs, structure, keeps_order
        self._block: list[Array] = []
        self._block_rows_read = 0

    def read(self, out: Sequence[Array]) -> int:
        """Read rows until `out` is full or the dataset ends, and return their number."""
        read_rows, max_rows = 0, len(out[0])
        while read_rows < max_rows and self._block_rows_left():
            count = min(max_rows - read_rows, self._block_rows_left())
            for array, leaf in zip(out, self._block, strict=True):
                array[read_rows : read_rows + count] = leaf[self._block_rows_read : self._block_rows_read + count]
            read_rows, self._block_rows_read = read_rows + count, self._block_rows_read + count
        return read_rows

    def skip(self, rows: int) -> int:
        """Skip this many rows, or fewer at the end of the dataset. Return their number."""
        if rows and not self._keeps_order:
            raise StateError(
                "rows of this Ray Dataset come in any order, so the feed cannot skip the rows that it delivered before "
                "the state was saved. Resume at the start of an epoch, or use from_dataset(dataset, order='kept')."
            )
        skipped_rows = 0
        while skipped_rows < rows and self._block_rows_left():
            count = min(rows - skipped_rows, self._block_rows_left())
            skipped_rows, self._block_rows_read = skipped_rows + count, self._block_rows_read + count
        return skipped_rows

    def state_dict(self) -> None:
        """Return None, because a resumed pass reads the dataset again and skips rows."""

    def close(self) -> None:
        self._block, self._blocks = [], iter(())

    def _block_rows_left(self) -> int:
        """Return the number of unread rows in the current block; 0 at the dataset's end.

        If the current block has no unread rows, move to the next block first.
        """
        while not self._block or self._block_rows_read == len(self._block[0]):
            block = next(self._blocks, None)
            if block is None:
                return 0
            self._block, self._block_rows_read = self._check_block(block), 0
        return len(self._block[0]) - self._block_rows_read

    def _check_block(self, block: dict[str, Any]) -> list[Array]:
        """Return the leaves of a block, or raise SourceError if a spec has changed."""
        leaves = [np.asarray(leaf) for leaf in self._structure.flatten_like(block)]
        for leaf, spec, name in zip(leaves, self._specs, self._structure.paths, strict=True):
            if leaf.dtype != spec.dtype or leaf.shape[1:] != spec.shape:
                raise SourceError(
                    f"{name!r} is {ArraySpec(leaf.shape[1:], leaf.dtype)} in one block and {spec} in the first row. "
                    "Give all rows the same spec with dataset.map_batches()."
                )
        return leaves
