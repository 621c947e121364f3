"""`PipelineDescription`: the fields of a pipeline, and properties computed from them."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from forebay.core.decision import Decision
from forebay.core.source import AbstractSource, AbstractStream
from forebay.core.spec import ArraySpec, Structure
from forebay.order.orders import Order
from forebay.order.schedule import ENDLESS, Schedule
from forebay.pipeline.ranks import Rank
from forebay.sources.file_recipe import FileSourceRecipe
from forebay.sources.streams.batches import BatchStream
from forebay.sources.streams.combinators import is_repeated_without_end
from forebay.transforms.ops import Map, Transform
from forebay.transforms.padding import RaggedFields, Unpadded

__all__ = ["Batching", "IndexFolder", "PipelineDescription"]


@dataclass(frozen=True, slots=True)
class Batching:
    """The arguments of `Pipeline.batch()`."""

    rows: int  # rows per batch; with `tokens`, the largest number of rows of a batch
    drop_remainder: bool
    pad: Mapping[str, Any] | Any | None  # one value, or one per field; None if rows are not padded
    tokens: int | None = None  # largest number of elements of a batch, with padding; None: all batches have `rows` rows
    ragged: RaggedFields | None = None  # the fields that become ragged; None if no field does
    sparse: bool = False  # whether rows of CSR matrices become sparse tensors of the framework


@dataclass(frozen=True, slots=True)
class IndexFolder:
    """The folder of `index()`, which stores the results of passes over all rows."""

    path: Path
    version: str | None  # the user's text that stands for the rows and the functions; None: Forebay hashes them
    # For each pass, whether it read the rows or found its result in the folder.
    decisions: tuple[Decision, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class PipelineDescription:
    """The fields of a pipeline."""

    source: AbstractSource | AbstractStream | BatchStream
    order: Order | None = None  # None if the source is a stream
    transforms: tuple[Transform, ...] = ()
    batching: Batching | None = None
    shard_index: int = 0
    shard_count: int = 1
    passes: int | None = 1  # number of passes over all rows in an epoch; None: endless
    batch_limit: int | None = None  # maximum number of batches per epoch
    seed: int = 0
    file_recipe: FileSourceRecipe | None = None  # lets Ray workers on other machines open the files; None without files
    rank: Rank | Literal["auto"] | None = None  # "auto": `feed()` detects it; None: not sharded by rank
    index_folder: IndexFolder | None = None  # None without `index()`: each process reads the rows again
    has_shard: bool = False  # whether shard() was called; shard(0, 1) says that the rows are already divided

    @property
    def specs(self) -> Sequence[ArraySpec]:
        """Spec of each leaf of a row of the source, before any transform."""
        return self.source.specs

    @property
    def structure(self) -> Structure:
        """How the fields of a row are nested."""
        return self.source.structure

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the labels 0, 1, ...; empty if the labels have no names.

        Labels of `from_images(label=...)` and of a categorical column have names.
        """
        return self.source.class_names

    @property
    def padded(self) -> bool:
        """Whether `batch()` has `pad` or `ragged`.

        If so, rows may differ in shape, and batches in size.
        """
        return self.batching is not None and (self.batching.pad is not None or self.batching.ragged is not None)

    @property
    def row_stacking(self) -> Unpadded | RaggedFields | Mapping[str, Any] | Any | None:
        """How rows of the source become a batch: the argument `pad`, or ragged fields.

        None if all rows have one shape. `Unpadded` if maps on rows follow: they receive the rows without padding, and
        the last of them pads its results.

        With `ragged=True`, the fields whose specs have a variable length are ragged. If no spec has one, but all specs
        are those of the first row, any field may be ragged.
        """
        if self.batching is None or self.batching.ragged is None:
            pad = self.batching.pad if self.batching is not None else None
            return pad if pad is None or self.last_row_map is None else Unpadded()
        if self.batching.ragged.names is not None:
            return self.batching.ragged
        ragged = frozenset(name for name, spec in zip(self.structure.paths, self.specs, strict=True) if spec.ragged)
        is_inferred = self.source.infers_specs or self.order is None
        return self.batching.ragged if is_inferred and not ragged else RaggedFields(ragged)

    @property
    def last_row_map(self) -> int | None:
        """The index in `transforms` of the host's last map on rows; None without one."""
        indices = [
            index
            for index, transform in enumerate(self.transforms)
            if isinstance(transform, Map) and transform.by_row and transform.where != "device"
        ]
        return indices[-1] if indices else None

    @property
    def input_specs(self) -> tuple[ArraySpec, ...]:
        """The specs of the rows that the first transform receives.

        They are `specs`, but the first length of ragged fields is variable. With `batch(tokens=)`, it is variable for
        all fields except scalars if the source takes its specs from its first row.
        """
        stacking = self.row_stacking
        if self.batching is not None and self.batching.tokens is not None and self.source.infers_specs:
            stacking = RaggedFields(None)
        if not isinstance(stacking, RaggedFields):
            return tuple(self.specs)
        return tuple(
            ArraySpec((None, *spec.shape[1:]), spec.dtype) if stacking.includes(name, len(spec.shape)) else spec
            for name, spec in zip(self.structure.paths, self.specs, strict=True)
        )

    @property
    def indexed(self) -> bool:
        """Whether rows are read by index. False for streams and ready-made batches."""
        return self.order is not None

    @property
    def schedule(self) -> Schedule:
        """The schedule, which cuts the positions of the order into batches of this shard."""
        batch_rows, drop_remainder = (self.batching.rows, self.batching.drop_remainder) if self.batching else (1, False)
        if self.batching is not None and self.batching.tokens is not None:
            batch_rows = 1  # a position of the order is a whole batch
        length = self.order.length if self.order is not None else None
        rows, shard = ENDLESS if length is None else length, (self.shard_index, self.shard_count)
        return Schedule(rows, batch_rows, drop_remainder, *shard, self.passes, self.batch_limit)

    @property
    def epoch_batches(self) -> int | None:
        """Number of batches of this shard per epoch; None if unknown or endless.

        Before `batch()`, the number of rows.
        """
        if self.indexed:
            return self.schedule.batches
        if isinstance(self.source, BatchStream) and self.source.length is not None and self.passes is not None:
            batches = len(range(self.shard_index, self.source.length, self.shard_count)) * self.passes
            return batches if self.batch_limit is None else min(batches, self.batch_limit)
        return None

    @property
    def is_endless(self) -> bool:
        """Whether an epoch never ends, because of a `repeat()` without a count.

        If the length of a stream is unknown, the stream counts as one that ends.
        """
        if self.batch_limit is not None:
            return False
        if self.passes is None or self.order is None:
            return self.passes is None or is_repeated_without_end(self.source)
        return self.order.length is None

    @property
    def fingerprint(self) -> str:
        """A hash of the order, the row specs, the passes and the batch limit.

        It does not depend on row values, batch size, shards or transforms. A state resumes only on a pipeline with an
        equal fingerprint. The batches of `batch(tokens=)` are part of the order.
        """
        order = self.order.describe() if self.order is not None else self._describe_stream()
        specs, structure = self.source.stored_rows
        parts = [order, [str(spec) for spec in specs], structure.paths, self.passes, self.batch_limit]
        return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()[:16]

    def _describe_stream(self) -> tuple[Any, ...]:
        return ("batches",) if isinstance(self.source, BatchStream) else self._stream.describe()

    @property
    def _stream(self) -> AbstractStream:
        assert isinstance(self.source, AbstractStream)
        return self.source
