"""`PlanInput` (what a feed must do) and `Plan` (how the feed does it)."""

from dataclasses import dataclass

from forebay.core.decision import Decision
from forebay.core.spec import ArraySpec, Layout, Structure
from forebay.pipeline.transport import DeviceInput, Transport
from forebay.sources.direct.strategy import ReadPlan
from forebay.transforms.ops import Transform
from forebay.transforms.workers.ray_cluster import ClusterShare

__all__ = ["INDEX_NBYTES", "INDEX_ROWS", "LENT_SLOTS", "MIN_INDEX_ROWS", "Plan", "PlanInput"]

LENT_SLOTS = 2  # slots: the group that the consumer reads, and the previous one until its last batch is released
INDEX_ROWS = 1 << 18  # row numbers per chunk; each chunk takes the interpreter lock from the training loop
MIN_INDEX_ROWS = 1 << 14
INDEX_NBYTES = 48  # bytes per row number: 8 in each of three cached chunks, and 24 while one is computed


@dataclass(frozen=True, slots=True)
class PlanInput:
    """What a feed must do: the request in the terms that the planner needs."""

    framework: str
    engine: str
    alignment: int
    batch_rows: int
    batches: int | None  # of one epoch; None if unknown or endless
    source_specs: tuple[ArraySpec, ...]
    specs: tuple[ArraySpec, ...]  # of a row in a slot, after the transforms of the host
    structure: Structure
    transforms: tuple[Transform, ...]  # those that run on the host
    indexed: bool
    row_by_row: bool  # True if Python code produces rows one by one
    fixed_size: bool  # True if all batches have the same known size; False for padded and ready-made batches
    shuffle_window_nbytes: int
    host_nbytes: int
    decisions: tuple[Decision, ...] = ()  # made before planning
    device: DeviceInput | None = None  # None for a feed to the CPU
    device_transforms: tuple[Transform, ...] = ()
    reading: ReadPlan | None = None  # how threads read rows from files; None without a file reader
    output: tuple[tuple[ArraySpec, ...], Structure] | None = None  # specs of a batch; None if a device map decides them
    cluster: ClusterShare | None = None  # the Ray workers, if a map requests them


@dataclass(frozen=True, slots=True)
class Plan:
    """How a feed runs."""

    input: PlanInput
    layout: Layout
    threads: int
    processes: int
    group_batches: int
    slots: int  # being filled or ready; the consumer holds others
    slot_nbytes: int  # in host memory
    scratch_nbytes: int  # host memory besides the slots, such as row numbers and buffers
    index_rows: int  # row numbers per computed chunk
    decisions: tuple[Decision, ...]
    transport: Transport | None = None  # how the device pulls rows; None if threads gather (and stage) them
    task_nbytes: int = 0  # rows and results of one task for a Ray worker

    @property
    def nbytes(self) -> int:
        """Upper limit of the host memory that the feed holds, without the source."""
        return (self.slots + LENT_SLOTS) * self.slot_nbytes + self.scratch_nbytes

    @property
    def thread_transforms(self) -> tuple[Transform, ...]:
        """Transforms that run in worker threads."""
        return self.input.transforms[: self._thread_transform_count]

    @property
    def worker_transforms(self) -> tuple[Transform, ...]:
        """Transforms that run in worker processes or Ray workers.

        All transforms after the first of these run there too, so that each batch goes to a worker only once.
        """
        return self.input.transforms[self._thread_transform_count :]

    @property
    def _thread_transform_count(self) -> int:
        if self.input.cluster is not None and self.input.cluster.row_delivery != "sent":
            return 0  # the Ray workers read the rows, so no thread sees them before
        wheres = [transform.where for transform in self.input.transforms]
        return next((number for number, where in enumerate(wheres) if where in ("process", "ray")), len(wheres))
