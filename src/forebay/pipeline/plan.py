"""What is asked of a feed, and how it runs: the two ends of planning. Pure."""

from dataclasses import dataclass

from forebay.core.decision import Reason
from forebay.core.spec import ArraySpec, Layout, Structure
from forebay.pipeline.transport import DeviceDemand, Transport
from forebay.sources.direct.strategy import Reading
from forebay.transforms.ops import Transform
from forebay.transforms.workers.ray_cluster import Cluster

__all__ = ["FEWEST_INDEX_ROWS", "INDEX_NBYTES", "INDEX_ROWS", "USUALLY_LENT", "Demand", "Plan"]

INDEX_ROWS = 1 << 18  # row numbers computed at a time: each time costs the training loop some turns of the interpreter
FEWEST_INDEX_ROWS = 1 << 14
USUALLY_LENT = 2  # slots: the group that the consumer reads, and the one before it until its last batch is released
INDEX_NBYTES = 48  # a row number: three chunks of them are kept, and computing one takes as much again


@dataclass(frozen=True, slots=True)
class Demand:
    """What is asked of a feed: the pipeline's side of the plan, after tracing."""

    target: str
    engine: str
    alignment: int
    batch_rows: int
    batches: int | None
    source_specs: tuple[ArraySpec, ...]
    specs: tuple[ArraySpec, ...]
    structure: Structure
    transforms: tuple[Transform, ...]
    indexed: bool
    by_item: bool  # rows are made one by one in Python
    sized: bool  # every batch has the same known bytes: neither ragged nor somebody else's
    window_nbytes: int
    host_nbytes: int
    notes: tuple[Reason, ...] = ()
    device: DeviceDemand | None = None  # where it is a device that rows go to
    afterwards: tuple[Transform, ...] = ()  # transforms on the device, once rows have arrived
    reading: Reading | None = None  # how rows of files are read, where it is known in which they lie
    given: tuple[tuple[ArraySpec, ...], Structure] | None = None  # what they leave; None where only running them tells
    cluster: Cluster | None = None  # where a map asks for Ray


@dataclass(frozen=True, slots=True)
class Plan:
    """How a feed runs."""

    demand: Demand
    layout: Layout
    threads: int
    processes: int
    group_batches: int
    slots: int
    slot_nbytes: int
    scratch_nbytes: int
    index_rows: int
    reasons: tuple[Reason, ...]
    transport: Transport | None = None  # None: rows are gathered by threads, and staged where a device is fed
    task_nbytes: int = 0  # of a task on its way to a Ray worker and back

    @property
    def nbytes(self) -> int:
        """The promise: what the feed holds above the source."""
        return (self.slots + USUALLY_LENT) * self.slot_nbytes + self.scratch_nbytes

    @property
    def head(self) -> tuple[Transform, ...]:
        """Transforms that run in threads."""
        return self.demand.transforms[: self._split]

    @property
    def tail(self) -> tuple[Transform, ...]:
        """Those in worker processes or on Ray: from the first that asks for it, so that data goes there once."""
        return self.demand.transforms[self._split :]

    @property
    def _split(self) -> int:
        if self.demand.cluster is not None and self.demand.cluster.rows != "sent":
            return 0  # nothing of a row is seen before it has been there
        wheres = [transform.where for transform in self.demand.transforms]
        return next((number for number, where in enumerate(wheres) if where in ("process", "ray")), len(wheres))
