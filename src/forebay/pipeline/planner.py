"""Pipeline x machine -> how it will run: how many threads, slots and bytes, each with its reason. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from forebay.core.decision import Reason
from forebay.core.spec import ArraySpec, Layout, format_nbytes
from forebay.errors import BudgetError
from forebay.pipeline.device_planner import plan_fetched, why_afterwards
from forebay.pipeline.plan import FEWEST_INDEX_ROWS, INDEX_NBYTES, INDEX_ROWS, USUALLY_LENT, Demand, Plan
from forebay.transforms.ops import Map, Transform
from forebay.transforms.workers.ray_cluster import TASKS_A_WORKER, Cluster

__all__ = ["make_plan"]

GROUP_NBYTES = 4 << 20  # waking a thread costs as much as gathering some hundred KiB, so groups are several times that
TASK_BATCHES = 8  # mapped by a worker process at a time: a trip there and back costs some 200 us of CPU
CLUSTER_TASK_BATCHES = 32  # the same on Ray, where the trip costs more: with 8, a light map was a third slower
TASKS_A_PROCESS = 32  # an epoch is cut into at least so many for each, or one would be waited for at its end
GROUP_BATCHES = 320  # asking whether a slot is still seen costs a little per batch in it
AHEAD = 4  # groups ready beside those being filled: fewer, and threads go to sleep and must be woken
MOST_AHEAD = 64
READING_THREADS = 3  # where rows are read by position: while one copies, the others' reads keep the disk busy
MOST_THREADS = 8  # one thread copies 9 GB/s, and a host kept too busy delays the training loop itself


def make_plan(demand: Demand, cores: int) -> Plan:
    """Choose the numbers, and take them back one by one until they keep the budget."""
    fetched = plan_fetched(demand, cores)
    if fetched is not None:
        return fetched
    draft: _Draft | None = _first_draft(demand, cores)
    while draft is not None:
        if draft.nbytes <= demand.host_nbytes:
            return draft.plan()
        smallest, draft = draft, draft.smaller()
    if demand.reading is not None and demand.reading.reads:
        return make_plan(replace(demand, reading=demand.reading.given_up(demand.host_nbytes)), cores)
    if not demand.sized:
        return smallest.plan()  # batches take what they take; the fewest possible are held
    needed = -(-smallest.nbytes // 2**20)
    raise BudgetError(
        f"host_bytes={format_nbytes(demand.host_nbytes)} is too small: a batch of {demand.batch_rows} rows takes "
        f"{format_nbytes(smallest.slot_nbytes)}, a feed of them {needed} MiB at least. Pass host_bytes='{needed}MiB'"
        f"{', or make batches smaller' if smallest.slot_nbytes > 2**20 else ''}."
    )


@dataclass(frozen=True, slots=True)
class _Choice:
    value: int
    why: str


@dataclass(frozen=True, slots=True)
class _Draft:
    """Numbers that may still be too large."""

    demand: Demand
    threads: _Choice
    processes: int
    group: _Choice
    slots: int
    index_rows: int

    @property
    def layout(self) -> Layout:
        return self._layout(self.demand.specs)

    @property
    def slot_nbytes(self) -> int:
        """Results, and beside them the rows for worker processes to read."""
        return self.layout.nbytes + (self._input_nbytes if self.processes else 0)

    @property
    def scratch_nbytes(self) -> int:
        """What each thread, and the consumer that helps, holds while it works; row numbers; a shuffle window."""
        working = (self.threads.value + 1) * (self._input_nbytes + self.layout.nbytes)
        held = self.demand.window_nbytes + self.index_rows * INDEX_NBYTES
        if self.demand.cluster is not None:  # what is on its way is what each thread holds
            return held + self._in_flight_nbytes + self._reading_nbytes
        return held + (working if self.demand.transforms else 0) + self._reading_nbytes

    @property
    def _reading_nbytes(self) -> int:
        """What rows are read into; looking ahead takes row numbers of its own."""
        reading = self.demand.reading
        if reading is None:
            return 0
        numbers = self.index_rows * INDEX_NBYTES if reading.reads else 0
        return reading.held_nbytes + numbers

    @property
    def task_nbytes(self) -> int:
        """A task and its answer; a worker that turns out not to have the rows is sent them."""
        return self._input_nbytes + self.layout.nbytes

    @property
    def _in_flight_nbytes(self) -> int:
        return self.threads.value * self.task_nbytes

    @property
    def nbytes(self) -> int:
        return (self.slots + USUALLY_LENT) * self.slot_nbytes + self.scratch_nbytes

    def smaller(self) -> "_Draft | None":
        """The next thing to give up, or None."""
        why = f"so that all fits into host_bytes={format_nbytes(self.demand.host_nbytes)}"
        if self.index_rows > FEWEST_INDEX_ROWS:
            return replace(self, index_rows=self.index_rows // 4)
        if self.demand.cluster is not None and self.group.value > 1:  # rather smaller tasks than fewer at a time
            return replace(self, group=_Choice(self.group.value // 2, why))
        if self.demand.cluster is not None and 2 < self.slots <= self.threads.value + AHEAD:
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
            demand=self.demand,
            layout=self.layout,
            threads=self.threads.value,
            processes=self.processes,
            group_batches=self.group.value,
            slots=self.slots,
            slot_nbytes=self.slot_nbytes,
            scratch_nbytes=self.scratch_nbytes,
            index_rows=self.index_rows,
            reasons=tuple(self._reasons()),
            task_nbytes=self.task_nbytes if self.demand.cluster is not None else 0,
        )

    def _reasons(self) -> Iterator[Reason]:
        demand = self.demand
        yield from demand.notes
        if demand.device is not None:
            yield Reason("transport", "stage", f"threads gather into page-locked memory: {demand.device.why_staged}")
        if demand.reading is not None:
            yield demand.reading.reason
        yield Reason("threads", str(self.threads.value), self.threads.why)
        if self.processes:
            yield Reason("processes", str(self.processes), _why_processes(demand))
        if demand.cluster is not None:
            yield from self._cluster_reasons(demand.cluster)
        yield Reason("group", f"{self.group.value} batch{'es' if self.group.value > 1 else ''}", self.group.why)
        ahead = f"one a thread, up to {self.slots - self.threads.value} ready, {USUALLY_LENT} in use; all reused"
        yield Reason("slots", f"{self.slots + USUALLY_LENT} x {format_nbytes(self.slot_nbytes)}", ahead)
        for transform in demand.transforms:
            yield Reason(str(transform), *_placed(transform, demand))
        for transform in demand.afterwards:
            yield Reason(str(transform), "device", why_afterwards(transform))
        within = f"slots and scratch, within host_bytes={format_nbytes(demand.host_nbytes)}"
        yield Reason("memory", format_nbytes(self.nbytes), within if demand.sized else "for batches like the first")

    def _cluster_reasons(self, cluster: Cluster) -> Iterator[Reason]:
        yield Reason("ray", f"{cluster.workers} worker{'s' if cluster.workers > 1 else ''}", cluster.why)
        yield Reason("rows", cluster.rows, cluster.rows_why)
        most = f"{self.threads.value} tasks of {format_nbytes(self.task_nbytes)}, rows and results"
        yield Reason("in flight", f"at most {format_nbytes(self._in_flight_nbytes)}", most)

    def _layout(self, specs: tuple[ArraySpec, ...]) -> Layout:
        rows, alignment = self.demand.batch_rows, self.demand.alignment
        return Layout.of(specs, batch_rows=rows, batches=self.group.value, alignment=alignment)

    @property
    def _input_nbytes(self) -> int:
        return self._layout(self.demand.source_specs).nbytes


def _first_draft(demand: Demand, cores: int) -> _Draft:
    processes = _processes(demand, cores)
    threads = _threads(demand, cores, processes)
    rows = INDEX_ROWS if demand.batches is None else min(INDEX_ROWS, demand.batches * demand.batch_rows)
    slots = threads.value + _ahead(demand)
    group = _group_batches(demand, demand.cluster.workers if demand.cluster is not None else processes)
    return _Draft(demand, threads, processes, group, slots, rows if demand.indexed else 0)


def _processes(demand: Demand, cores: int) -> int:
    """One for each core, or as many as were asked for."""
    asked = [made.workers or cores for made in demand.transforms if isinstance(made, Map) and made.where == "process"]
    return min(asked, default=0)


def _threads(demand: Demand, cores: int, processes: int) -> _Choice:
    if not demand.indexed and not any(isinstance(transform, Map) for transform in demand.transforms):
        return _Choice(1, "a stream is read by one thread, always the same")
    if processes:
        return _Choice(processes, "one to drive each worker process")
    if demand.cluster is not None:
        return _Choice(demand.cluster.workers * TASKS_A_WORKER, "each waits for one task; a Ray worker has two")
    if demand.reading is not None and demand.reading.reads:
        return _Choice(
            max(READING_THREADS, min(cores // 4, MOST_THREADS)), "while one waits for the disk, another copies"
        )
    # One core is the consumer's, which helps to fill whenever it would have to wait.
    return _Choice(max(1, min(cores - 1, MOST_THREADS)), f"{cores} cores may be used; the consumer helps when it waits")


def _ahead(demand: Demand) -> int:
    """Groups ready beside those being filled; a stream's are single batches, so there are more of them."""
    if demand.indexed or not demand.sized:
        return AHEAD
    batch_nbytes = Layout.of(demand.specs, batch_rows=demand.batch_rows, alignment=demand.alignment).nbytes
    return max(AHEAD, min(MOST_AHEAD, GROUP_NBYTES // batch_nbytes))


def _group_batches(demand: Demand, processes: int) -> _Choice:
    batch_nbytes = Layout.of(demand.specs, batch_rows=demand.batch_rows, alignment=demand.alignment).nbytes
    if not demand.sized:
        return _Choice(1, "batches differ in size")
    if not demand.indexed:
        return _Choice(1, "the next row may be long in coming, and no batch waits for it")
    if processes:
        return _task_batches(demand, processes, batch_nbytes)
    if demand.by_item or any(isinstance(transform, Map) for transform in demand.transforms):
        return _Choice(1, "Python code makes each batch, which costs more than handing it over")
    fit = max(1, min(GROUP_BATCHES, GROUP_NBYTES // batch_nbytes))
    if demand.batches is not None and demand.batches < fit:
        return _Choice(max(1, demand.batches), "the whole epoch")
    if fit == 1:
        return _Choice(1, f"a batch has {format_nbytes(batch_nbytes)} already")
    return _Choice(
        fit, f"batches of {format_nbytes(batch_nbytes)} are filled together, up to {format_nbytes(GROUP_NBYTES)}"
    )


def _task_batches(demand: Demand, processes: int, batch_nbytes: int) -> _Choice:
    most, who = (TASK_BATCHES, "worker process") if demand.cluster is None else (CLUSTER_TASK_BATCHES, "Ray worker")
    shared = most if demand.batches is None else demand.batches // (processes * TASKS_A_PROCESS)
    batches = max(1, min(shared, most, GROUP_NBYTES // batch_nbytes))
    if batches == 1:
        return _Choice(1, f"a batch for a {who} at a time")
    return _Choice(batches, f"mapped by a {who} at a time, which shares the trip there and back")


def _why_processes(demand: Demand) -> str:
    way = "in shared memory" if demand.sized else "pickled, because batches differ in size"
    return f"a map asks for them; data goes there {way}"


def _placed(transform: Transform, demand: Demand) -> tuple[str, str]:
    """Where a transform runs, and why there."""
    if transform.where == "either" and demand.cluster is None:
        why = "no link to cross" if demand.device is None else "no more bytes cross for it"
        return "thread", f"{why}: done while the rows are in the cache"
    if demand.cluster is not None and transform.where != "ray":
        there = demand.cluster.rows != "sent" or _comes_after_ray(transform, demand)
        return ("ray", "rows are there then, and travel once") if there else ("thread", "before rows are sent to Ray")
    return transform.where, "as asked"


def _comes_after_ray(transform: Transform, demand: Demand) -> bool:
    wheres = [made.where for made in demand.transforms]
    return demand.transforms.index(transform) > wheres.index("ray")
