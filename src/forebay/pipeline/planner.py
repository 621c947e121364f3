"""The planner: computes the `Plan` of a feed from its `PlanInput`.

This module is pure: it uses no thread, no clock and no device.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from forebay.core.decision import Decision
from forebay.core.spec import ArraySpec, Layout, format_nbytes
from forebay.errors import BudgetError
from forebay.pipeline.device_planner import describe_map, describe_tables, plan_device_pull, why_on_device
from forebay.pipeline.plan import INDEX_NBYTES, INDEX_ROWS, LENT_SLOTS, MIN_INDEX_ROWS, Plan, PlanInput, add_slots
from forebay.transforms.augmentations import Augmentation
from forebay.transforms.ops import Map
from forebay.transforms.workers.ray_cluster import TASKS_PER_WORKER, ClusterShare

__all__ = ["GROUP_NBYTES", "READY_GROUPS", "make_plan"]

# Target size of a group in bytes. To wake a thread takes as long as to gather some hundred KiB, so a group of this size
# makes the cost of the wake-up small.
GROUP_NBYTES = 4 << 20
MAX_GROUP_BATCHES = 320  # limit for small batches, because the consumer checks the lease of every batch to reuse a slot
READY_GROUPS = 4  # ready groups in addition to those being filled; with fewer, threads often sleep and must be woken
MAX_READY_GROUPS = 64  # upper limit of ready groups for a stream, which needs more groups because each has one batch
MAX_THREADS = 8  # worker threads; one thread copies 9 GB/s, and more than 8 would delay the training loop
DECODING_GROUPS = 2  # groups decoded at a time; when one has no rows left, free decoder threads take rows of the other
MIN_READ_THREADS = 3  # while one thread copies rows, the reads of the other threads keep the disk busy
PROCESS_TASK_BATCHES = 8  # batches per task of a worker process; a round trip takes about 200 us of CPU time
RAY_TASK_BATCHES = 32  # batches per task of a Ray worker; with 8, a fast map was a third slower
MIN_TASKS_PER_WORKER_AND_EPOCH = 32  # with fewer tasks, workers idle longer at the end of an epoch


def make_plan(plan_input: PlanInput, cores: int) -> Plan:
    """Return a plan that fits into the host budget. Raise BudgetError if there is none.

    If the sizes of batches are unknown, return the smallest plan instead of raising the error, unless the tables of the
    order alone exceed the budget. `cores` is the number of cores that this process may use.
    """
    pull_plan = plan_device_pull(plan_input, cores)
    if pull_plan is not None:
        return pull_plan
    draft: _Draft | None = _first_draft(plan_input, cores)
    while draft is not None:
        if draft.nbytes <= plan_input.host_nbytes:
            return draft.plan()
        smallest, draft = draft, draft.reduce()
    if plan_input.reading is not None and plan_input.reading.uses_read_buffers:
        without_buffers = plan_input.reading.mapped_fallback(plan_input.host_nbytes)
        return make_plan(replace(plan_input, reading=without_buffers), cores)
    if not plan_input.fixed_size and plan_input.tokens is None and plan_input.order_nbytes <= plan_input.host_nbytes:
        return smallest.plan()  # the sizes are those of the first batch, and the other batches may be smaller
    needed_mib, tables = -(-smallest.nbytes // 2**20), describe_tables(plan_input)
    raise BudgetError(
        f"host_bytes={format_nbytes(plan_input.host_nbytes)} is too small: a batch of {plan_input.batch_size} "
        f"takes {format_nbytes(smallest.slot_nbytes)}{f', {tables}' if tables else ''}, and the feed needs at least "
        f"{needed_mib} MiB. "
        f"Pass host_bytes='{needed_mib}MiB'{', or make batches smaller' if smallest.slot_nbytes > 2**20 else ''}."
    )


@dataclass(frozen=True, slots=True)
class _Choice:
    """A number of the plan and its reason."""

    value: int
    why: str


@dataclass(frozen=True, slots=True)
class _Draft:
    """The numbers of a plan. They may exceed the host budget."""

    input: PlanInput
    threads: _Choice
    processes: int  # worker processes
    group: _Choice  # batches per group
    slots: int  # slots being filled or ready
    index_rows: int  # row numbers that the feed computes at a time

    @property
    def nbytes(self) -> int:
        return add_slots(self.scratch_nbytes, self.slots, self.slot_nbytes)

    @property
    def layout(self) -> Layout:
        return self._layout_of(self.input.specs)

    @property
    def slot_nbytes(self) -> int:
        """Bytes of a slot: the transformed rows, and the rows that worker processes receive."""
        return self.layout.nbytes + (self._input_nbytes if self.processes else 0)

    @property
    def scratch_nbytes(self) -> int:
        """Bytes of host memory besides the slots.

        They are for the shuffle window of a stream, tables of the order, row numbers, read buffers, and temporary data
        of the source and of transforms. Each thread needs memory for temporary data. The consumer counts as one more
        thread, because it may fill groups. With Ray workers, the memory of Ray tasks replaces that of transforms.
        """
        nbytes = self.input.shuffle_window_nbytes + self.index_rows * INDEX_NBYTES + self._reading_nbytes
        nbytes += (self.threads.value + 1) * self._source_scratch_nbytes
        nbytes += self.input.order_nbytes
        if self.input.cluster is not None:  # each thread waits for one Ray task
            return nbytes + self._in_flight_nbytes
        thread_nbytes = self._input_nbytes + self.layout.nbytes + self.input.augmentation_nbytes
        transform_nbytes = (self.threads.value + 1) * thread_nbytes
        return nbytes + (transform_nbytes if self.input.transforms else 0)

    @property
    def task_nbytes(self) -> int:
        """Bytes of the rows and the results of a Ray task.

        The rows always count, because a task contains them if the Ray worker cannot read them itself.
        """
        return self._input_nbytes + self.layout.nbytes

    def reduce(self) -> "_Draft | None":
        """Return a draft that uses less memory; None if this draft is the smallest."""
        why = f"to fit into host_bytes={format_nbytes(self.input.host_nbytes)}"
        if self.index_rows > MIN_INDEX_ROWS:
            return replace(self, index_rows=self.index_rows // 4)
        if self.input.cluster is not None and self.group.value > 1:  # reduce the size of Ray tasks before their number
            return replace(self, group=_Choice(self.group.value // 2, why))
        if self.input.cluster is not None and 2 < self.slots <= self.threads.value + READY_GROUPS:
            return replace(self, slots=self.slots - 1, threads=_Choice(min(self.threads.value, self.slots - 1), why))
        if self.slots > 2:
            return replace(self, slots=self.slots - 1)
        if self.group.value > 1:
            return replace(self, group=_Choice(self.group.value // 2, why))
        if self.threads.value > 1:
            return replace(self, threads=_Choice(1, why), processes=min(self.processes, 1))
        return None

    def plan(self) -> Plan:
        return Plan(
            input=self.input,
            layout=self.layout,
            threads=self.threads.value,
            processes=self.processes,
            group_batches=self.group.value,
            slots=self.slots,
            slot_nbytes=self.slot_nbytes,
            scratch_nbytes=self.scratch_nbytes,
            index_rows=self.index_rows,
            decisions=tuple(self._decisions()),
            task_nbytes=self.task_nbytes if self.input.cluster is not None else 0,
        )

    def _decisions(self) -> Iterator[Decision]:
        plan_input = self.input
        yield from plan_input.decisions
        if plan_input.device is not None:
            why = f"worker threads gather into page-locked memory: {plan_input.device.why_staged}"
            yield Decision("transport", "stage", why)
        if plan_input.reading is not None:
            yield plan_input.reading.decision
        yield Decision("threads", str(self.threads.value), self.threads.why)
        if self.processes:
            yield Decision("processes", str(self.processes), _why_processes(plan_input))
        if plan_input.cluster is not None:
            yield from self._cluster_decisions(plan_input.cluster)
        yield Decision("group", f"{self.group.value} batch{'es' if self.group.value > 1 else ''}", self.group.why)
        yield Decision("slots", f"{self.slots + LENT_SLOTS} x {format_nbytes(self.slot_nbytes)}", self._why_slots())
        for number, transform in enumerate(plan_input.transforms):
            where, why = _placement(number, plan_input)
            yield Decision(str(transform), where, why + describe_map(transform))
        for transform in plan_input.device_transforms:
            yield Decision(str(transform), "device", why_on_device(transform, has_gpu=plan_input.device is not None))
        if plan_input.fixed_size:
            why_memory = f"slots and buffers; the limit is host_bytes={format_nbytes(plan_input.host_nbytes)}"
        else:
            why_memory = "if all batches are as large as " + ("the first" if plan_input.tokens is None else "allowed")
        why_memory += f"; {tables}" if (tables := describe_tables(plan_input)) else ""
        yield Decision("memory", format_nbytes(self.nbytes), why_memory)

    def _why_slots(self) -> str:
        ready = self.slots - self.threads.value
        if ready < 0:
            filled = f"{self.slots} to fill, fewer than threads, to fit into host_bytes"
        else:
            filled = f"one per thread, {ready} for ready groups"
        return f"{filled}, {LENT_SLOTS} for the consumer; all are reused"

    def _cluster_decisions(self, cluster: ClusterShare) -> Iterator[Decision]:
        yield Decision("ray", f"{cluster.workers} worker{'s' if cluster.workers > 1 else ''}", cluster.why)
        yield Decision("rows", cluster.row_delivery, cluster.row_delivery_why)
        tasks = f"{self.threads.value} tasks of {format_nbytes(self.task_nbytes)}, rows and results"
        yield Decision("in flight", f"at most {format_nbytes(self._in_flight_nbytes)}", tasks)

    @property
    def _source_scratch_nbytes(self) -> int:
        """Bytes of temporary memory that the source needs to gather a group."""
        group_rows = self.group.value * self.input.batch_rows
        return min(self.input.max_scratch_nbytes, group_rows * self.input.scratch_row_nbytes)

    @property
    def _input_nbytes(self) -> int:
        """Bytes of the rows of one group, before transforms."""
        return self._layout_of(self.input.source_specs).nbytes

    @property
    def _in_flight_nbytes(self) -> int:
        """Bytes of all Ray tasks that run or are queued at a time."""
        return self.threads.value * self.task_nbytes

    @property
    def _reading_nbytes(self) -> int:
        """Bytes of the read buffers, and of the row numbers that a prefetching reader computes."""
        reading = self.input.reading
        if reading is None:
            return 0
        return reading.buffers_nbytes + (self.index_rows * INDEX_NBYTES if reading.uses_read_buffers else 0)

    def _layout_of(self, specs: tuple[ArraySpec, ...]) -> Layout:
        rows, alignment = self.input.batch_rows, self.input.alignment
        return Layout.of(
            self.input.with_counted_lengths(specs), batch_rows=rows, batches=self.group.value, alignment=alignment
        )


def _first_draft(plan_input: PlanInput, cores: int) -> _Draft:
    processes = _process_count(plan_input, cores)
    threads = _thread_count(plan_input, cores, processes)
    rows = INDEX_ROWS if plan_input.batches is None else min(INDEX_ROWS, plan_input.batches * plan_input.batch_rows)
    slots = threads.value + _ready_groups(plan_input)
    group = _group_batches(plan_input, plan_input.cluster.workers if plan_input.cluster is not None else processes)
    return _Draft(plan_input, threads, processes, group, slots, rows if plan_input.indexed else 0)


def _process_count(plan_input: PlanInput, cores: int) -> int:
    """Return the number of worker processes; 0 if no map runs in processes.

    This is the smallest `workers` of all maps with where="process". Without `workers`, a map counts as one with
    a process for each core.
    """
    process_maps = [
        transform for transform in plan_input.transforms if isinstance(transform, Map) and transform.where == "process"
    ]
    return min((process_map.workers or cores for process_map in process_maps), default=0)


def _thread_count(plan_input: PlanInput, cores: int, processes: int) -> _Choice:
    has_map = any(isinstance(transform, Map) for transform in plan_input.transforms)
    has_images = any(isinstance(transform, Augmentation) for transform in plan_input.transforms)
    if not plan_input.indexed and not has_map and not has_images:
        return _Choice(1, "one thread reads a stream")
    if processes:
        return _Choice(processes, "one per worker process")
    if plan_input.cluster is not None:
        return _Choice(
            plan_input.cluster.workers * TASKS_PER_WORKER, "one per task; each Ray worker has two tasks at a time"
        )
    if plan_input.reading is not None and plan_input.reading.uses_read_buffers:
        threads = max(MIN_READ_THREADS, min(cores // 4, MAX_THREADS))
        return _Choice(threads, "while one thread waits for the disk, another copies rows")
    if plan_input.decodes_rows and not has_map and has_images:
        threads = max(DECODING_GROUPS, min(cores, MAX_THREADS))
        return _Choice(threads, "while threads augment groups, the decoder threads decode the next ones")
    if plan_input.decodes_rows and not has_map:
        return _Choice(DECODING_GROUPS, "each passes a group to the decoder threads, which decode it on all cores")
    # One core stays free for the consumer, which fills groups itself instead of waiting.
    why = f"{cores} cores are available; the consumer fills groups too if none is ready"
    return _Choice(max(1, min(cores - 1, MAX_THREADS)), why)


def _ready_groups(plan_input: PlanInput) -> int:
    """Return how many groups threads fill in advance.

    A group of a stream has only one batch, so a stream needs more groups.
    """
    if plan_input.indexed or not plan_input.fixed_size:
        return READY_GROUPS
    return max(READY_GROUPS, min(MAX_READY_GROUPS, GROUP_NBYTES // _batch_nbytes(plan_input)))


def _group_batches(plan_input: PlanInput, workers: int) -> _Choice:
    batch_nbytes = _batch_nbytes(plan_input)
    if not plan_input.fixed_size:
        return _Choice(1, "batches may differ in size")
    if not plan_input.indexed:
        return _Choice(1, "a batch of a stream is delivered as soon as its rows are read")
    if workers:
        return _task_batches(plan_input, workers, batch_nbytes)
    if plan_input.row_by_row or any(isinstance(transform, Map | Augmentation) for transform in plan_input.transforms):
        return _Choice(1, "Python code makes each batch, so the time to pass it to the consumer matters little")
    max_batches = max(1, min(MAX_GROUP_BATCHES, GROUP_NBYTES // batch_nbytes))
    if plan_input.batches is not None and plan_input.batches < max_batches:
        return _Choice(max(1, plan_input.batches), "the whole epoch")
    if max_batches == 1:
        return _Choice(1, f"two batches of {format_nbytes(batch_nbytes)} would exceed {format_nbytes(GROUP_NBYTES)}")
    why = f"batches of {format_nbytes(batch_nbytes)} are filled together, up to {format_nbytes(GROUP_NBYTES)}"
    return _Choice(max_batches, why)


def _task_batches(plan_input: PlanInput, workers: int, batch_nbytes: int) -> _Choice:
    on_ray = plan_input.cluster is not None
    limit, worker = (RAY_TASK_BATCHES, "Ray worker") if on_ray else (PROCESS_TASK_BATCHES, "worker process")
    task_share = (
        limit if plan_input.batches is None else plan_input.batches // (workers * MIN_TASKS_PER_WORKER_AND_EPOCH)
    )
    batches = max(1, min(task_share, limit, GROUP_NBYTES // batch_nbytes))
    if batches == 1:
        return _Choice(1, f"one batch per task of a {worker}")
    return _Choice(batches, f"sent to a {worker} as one task, which saves round trips")


def _batch_nbytes(plan_input: PlanInput) -> int:
    specs = plan_input.with_counted_lengths(plan_input.specs)
    return Layout.of(specs, batch_rows=plan_input.batch_rows, alignment=plan_input.alignment).nbytes


def _why_processes(plan_input: PlanInput) -> str:
    how = "through shared memory" if plan_input.fixed_size else "pickled, because batches may differ in size"
    return f"a map has where='process'; rows are passed {how}"


def _placement(number: int, plan_input: PlanInput) -> tuple[str, str]:
    """Return where the transform with index `number` runs, and why."""
    where, on_ray = plan_input.transforms[number].where, plan_input.cluster is not None
    if number >= plan_input.thread_transform_count and where not in ("process", "ray"):
        if on_ray:
            return "ray", "the rows are on the Ray worker already"
        return "process", "the rows are in the worker process already"
    if on_ray and where != "ray":
        return "thread", "it runs before the rows are sent to Ray"
    if where == "either":
        return "thread", "the rows are in the CPU cache of the worker thread"
    return where, "as requested"
