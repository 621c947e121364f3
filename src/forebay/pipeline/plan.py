"""`PlanInput` (everything that the planner reads) and `Plan` (threads, slots and bytes of a feed)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from forebay.core.decision import Decision
from forebay.core.handoff import BatchSplit
from forebay.core.spec import ArraySpec, Layout, Structure, format_nbytes
from forebay.pipeline.card import fit_lines, list_fields, render_card
from forebay.pipeline.transport import DeviceInput, Transport
from forebay.sources.direct.strategy import ReadPlan
from forebay.transforms.ops import Transform
from forebay.transforms.workers.ray_cluster import ClusterShare

__all__ = ["INDEX_NBYTES", "INDEX_ROWS", "LENT_SLOTS", "MIN_INDEX_ROWS", "Plan", "PlanInput", "add_slots"]

LENT_SLOTS = 2  # slots that the consumer uses: that of its group, and the previous one until its last batch is dropped
# Row numbers that the feed computes in one call. During the call, the training loop may wait for the GIL. So a larger
# number interrupts the loop less often, but needs more memory.
INDEX_ROWS = 1 << 18
# To fit into host_bytes, the planner divides `index_rows` by 4 while it is larger than this.
MIN_INDEX_ROWS = 1 << 14
INDEX_NBYTES = 48  # bytes per row number: 8 in each of three cached arrays, and 24 while an array is computed


@dataclass(frozen=True, slots=True)
class PlanInput:
    """Everything that the planner reads."""

    framework: str  # such as "torch"
    engine: str  # such as "cuda"
    alignment: int  # of every leaf of a batch, in bytes
    batch_rows: int
    batches: int | None  # per epoch; None if unknown or endless
    source_specs: tuple[ArraySpec, ...]
    specs: tuple[ArraySpec, ...]  # of a row in a slot, after the host's transforms
    structure: Structure
    transforms: tuple[Transform, ...]  # the host's transforms
    indexed: bool  # whether rows are read by index
    row_by_row: bool  # whether Python code produces rows one by one
    fixed_size: bool  # whether all batches have the same known size; False for padded, ragged and ready-made batches
    shuffle_window_nbytes: int  # size of the shuffle window of a stream
    host_nbytes: int  # the option host_bytes
    decisions: tuple[Decision, ...] = ()  # made before planning
    device: DeviceInput | None = None  # None for a feed to the CPU
    device_transforms: tuple[Transform, ...] = ()
    reading: ReadPlan | None = None  # how threads read rows from files; None if they read no files
    # Specs and structure that the consumer receives; unknown, so None, if a map runs on the device.
    output: tuple[tuple[ArraySpec, ...], Structure] | None = None
    cluster: ClusterShare | None = None  # the Ray workers; None if no map runs on Ray
    offsets_dtype: np.dtype[Any] | None = None  # of the offsets of ragged rows; None if no field is ragged
    tokens: int | None = None  # largest number of elements of a batch; None if batches have `batch_rows` rows
    order_nbytes: int = 0  # host memory of the tables that the order computes in each epoch
    decodes_rows: bool = False  # whether decoder threads decode the rows of a group
    decodes_on_device: bool = False  # whether the device decodes the images; the host then only reads their files
    split: BatchSplit | None = None  # how a batch is divided among several devices; None for one device
    augmentation_nbytes: int = 0  # per thread: results between augmentations, and buffers for the pixels of one row
    scratch_row_nbytes: int = 0  # bytes of temporary memory that the source needs for each row of a group
    max_scratch_nbytes: int = 1 << 62  # upper limit of this temporary memory for a whole group; 1 << 62: no limit

    @property
    def batch_size(self) -> str:
        """The size of a batch, in words."""
        return f"{self.batch_rows} rows" if self.tokens is None else f"at most {self.tokens} elements"

    def with_counted_lengths(self, specs: tuple[ArraySpec, ...]) -> tuple[ArraySpec, ...]:
        """Return the specs with lengths from which the planner computes the size of a batch.

        With `tokens`, the first variable length becomes the length at which `batch_rows` rows have `tokens` elements.
        Otherwise the specs stay the same, and a variable length counts as 1.
        """
        if self.tokens is None:
            return specs
        return tuple(spec.with_length(-(-self.tokens // self.batch_rows)) for spec in specs)

    def is_ragged(self, leaf: int) -> bool:
        """Return whether a leaf has ragged rows in a slot."""
        return self.offsets_dtype is not None and self.specs[leaf].ragged

    @property
    def thread_transform_count(self) -> int:
        """Number of transforms that run in worker threads.

        The first map with where="process" or "ray" and all later transforms run in workers, so that the feed sends each
        batch to a worker only once. If Ray workers read the rows, they run all transforms.
        """
        if self.cluster is not None and self.cluster.row_delivery != "sent":
            return 0  # the Ray workers read the rows themselves, so threads have no rows to transform
        wheres = [transform.where for transform in self.transforms]
        return next((number for number, where in enumerate(wheres) if where in ("process", "ray")), len(wheres))


@dataclass(frozen=True, slots=True)
class Plan:
    """Threads, slots and bytes of a feed, each with its decision."""

    input: PlanInput
    layout: Layout
    threads: int
    processes: int
    group_batches: int
    slots: int  # slots being filled or ready, without those of the consumer (LENT_SLOTS or `transport.consumer_slots`)
    slot_nbytes: int  # host memory of one slot; 0 if the device pulls the rows
    scratch_nbytes: int  # host memory besides the slots, such as row numbers and buffers
    index_rows: int  # row numbers that the feed computes at a time
    decisions: tuple[Decision, ...]
    transport: Transport | None = None  # how the device pulls rows; None if threads gather (and stage) them
    task_nbytes: int = 0  # rows and results of one task of a Ray worker; 0 without Ray

    @property
    def nbytes(self) -> int:
        """Largest host memory that the feed uses, in bytes, not counting the source.

        If batches may differ in size, this is an estimate. It assumes that all batches are as large as the first or,
        with `tokens`, as large as allowed.
        """
        return add_slots(self.scratch_nbytes, self.slots, self.slot_nbytes)

    @property
    def headline(self) -> str:
        """The target and the batches, in words."""
        batches = "an unknown number of" if self.input.batches is None else f"{self.input.batches:,}"
        return f"{self.input.framework} on {self.input.engine}, {batches} batches of {self.input.batch_size}"

    def card(self, title: str, *, notes: Iterable[Decision] = (), lines: Iterable[str] = ()) -> str:
        """Return an HTML card for a notebook, with the fields, all decisions and their reasons.

        `notes` are decisions that the feed made after planning. The card shows `lines` below the table.
        """
        fields = list_fields(self.input.structure.paths, self.input.specs)
        rows = [Decision("fields", str(len(self.input.specs)), fields), *self.decisions, *notes]
        return render_card(title, self.headline, rows, lines)

    def __repr__(self) -> str:
        consumer_slots = LENT_SLOTS if self.transport is None else self.transport.consumer_slots
        counts = {"thread": self.threads, "process": self.processes, "slot": self.slots + consumer_slots}
        plurals = {"process": "processes"}
        resources = [
            f"{count} {name if count == 1 else plurals.get(name, f'{name}s')}"
            for name, count in counts.items()
            if count
        ]
        resources.append(f"{format_nbytes(self.nbytes)} of host memory")
        return fit_lines([f"Plan: {self.headline}", f"  {', '.join(resources)}"])

    def _repr_html_(self) -> str:
        return self.card("Plan")

    @property
    def thread_transforms(self) -> tuple[Transform, ...]:
        """Transforms that run in worker threads."""
        return self.input.transforms[: self.input.thread_transform_count]

    @property
    def worker_transforms(self) -> tuple[Transform, ...]:
        """Transforms that run in worker processes or Ray workers."""
        return self.input.transforms[self.input.thread_transform_count :]


def add_slots(nbytes: int, slots: int, slot_nbytes: int) -> int:
    """Return the sum of `nbytes` and the host bytes of all slots.

    The slots include those of the consumer.
    """
    return nbytes + (slots + LENT_SLOTS) * slot_nbytes
