"""Pipeline x machine -> how it will run: how many threads, slots and bytes, each with its reason. Pure."""

from dataclasses import dataclass

from forebay.errors import BudgetError
from forebay.ring import USUALLY_LENT
from forebay.spec import ArraySpec, Layout, Structure, format_nbytes
from forebay.transforms import Map, Transform

__all__ = ["Demand", "Plan", "Reason", "make_plan"]

GROUP_NBYTES = 4 << 20  # waking a thread costs as much as gathering some hundred KiB, so groups are several times that
GROUP_BATCHES = 320  # asking whether a slot is still seen costs a little per batch in it
INDEX_NBYTES = 3 << 20  # row numbers computed ahead, and what computing them takes
AHEAD = 4  # groups ready beside those being filled: fewer, and threads go to sleep and must be woken
MOST_AHEAD = 64
MOST_THREADS = 8  # one thread copies 9 GB/s, and a host kept too busy delays the training loop itself


@dataclass(frozen=True, slots=True)
class Reason:
    """One decision, for `explain()`."""

    name: str
    choice: str
    why: str


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
    reasons: tuple[Reason, ...]

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
        """Transforms that run in worker processes: from the first that asks for one, so that data goes there once."""
        return self.demand.transforms[self._split :]

    @property
    def _split(self) -> int:
        wheres = [transform.where for transform in self.demand.transforms]
        return wheres.index("process") if "process" in wheres else len(wheres)


def make_plan(demand: Demand, cores: int) -> Plan:
    """Choose the numbers, within the budget."""
    processes = cores if any(transform.where == "process" for transform in demand.transforms) else 0
    threads = _threads(demand, cores, processes)
    group = _group_batches(demand)
    slots = threads.value + _ahead(demand)
    while True:
        plan = _assemble(demand, threads, processes, group, slots)
        if plan.nbytes <= demand.host_nbytes or not demand.sized:
            return plan
        if slots > 2:
            slots -= 1
        elif group.value > 1:
            group = _Choice(
                max(1, group.value // 2), f"so that slots fit into host_bytes={format_nbytes(demand.host_nbytes)}"
            )
        elif threads.value > 1:
            threads = _Choice(1, f"so that slots fit into host_bytes={format_nbytes(demand.host_nbytes)}")
            processes = min(processes, 1)
        else:
            raise BudgetError(
                f"host_bytes={format_nbytes(demand.host_nbytes)} is too small: a batch of {demand.batch_rows} rows "
                f"takes {format_nbytes(plan.slot_nbytes)}, and a feed needs {format_nbytes(plan.nbytes)} at least. "
                "Pass a larger host_bytes, or make batches smaller."
            )


@dataclass(frozen=True, slots=True)
class _Choice:
    value: int
    why: str


def _threads(demand: Demand, cores: int, processes: int) -> _Choice:
    if not demand.indexed and not any(isinstance(transform, Map) for transform in demand.transforms):
        return _Choice(1, "a stream is read by one thread, always the same")
    if processes:
        return _Choice(processes, "one to drive each worker process")
    # One core is the consumer's, which helps to fill whenever it would have to wait.
    return _Choice(max(1, min(cores - 1, MOST_THREADS)), f"{cores} cores may be used; the consumer helps when it waits")


def _ahead(demand: Demand) -> int:
    """Groups ready beside those being filled; a stream's are single batches, so there are more of them."""
    if demand.indexed or not demand.sized:
        return AHEAD
    batch_nbytes = Layout.of(demand.specs, batch_rows=demand.batch_rows, alignment=demand.alignment).nbytes
    return max(AHEAD, min(MOST_AHEAD, GROUP_NBYTES // batch_nbytes))


def _group_batches(demand: Demand) -> _Choice:
    batch_nbytes = Layout.of(demand.specs, batch_rows=demand.batch_rows, alignment=demand.alignment).nbytes
    if not demand.sized:
        return _Choice(1, "batches differ in size")
    if not demand.indexed:
        return _Choice(1, "the next row may be long in coming, and no batch waits for it")
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


def _assemble(demand: Demand, threads: _Choice, processes: int, group: _Choice, slots: int) -> Plan:
    layout = Layout.of(demand.specs, batch_rows=demand.batch_rows, batches=group.value, alignment=demand.alignment)
    raw = Layout.of(demand.source_specs, batch_rows=demand.batch_rows, batches=group.value, alignment=demand.alignment)
    slot_nbytes = layout.nbytes + (raw.nbytes if processes else 0)
    scratch = threads.value * raw.nbytes if demand.transforms else 0
    scratch += demand.window_nbytes + (INDEX_NBYTES if demand.indexed else 0)
    made = [
        *demand.notes,
        Reason("threads", str(threads.value), threads.why),
        *(
            [Reason("processes", str(processes), "a map asks for them; data goes there in shared memory")]
            if processes
            else []
        ),
        Reason("group", f"{group.value} batch{'es' if group.value > 1 else ''}", group.why),
        Reason(
            "slots",
            f"{slots} x {format_nbytes(slot_nbytes)}",
            f"one a thread, and up to {slots - threads.value} ready ahead; all reused",
        ),
    ]
    made += [Reason(str(transform), _place(transform), _why_there(transform)) for transform in demand.transforms]
    plan = Plan(demand, layout, threads.value, processes, group.value, slots, slot_nbytes, scratch, tuple(made))
    budget = Reason(
        "memory", format_nbytes(plan.nbytes), f"above the source, within host_bytes={format_nbytes(demand.host_nbytes)}"
    )
    return Plan(
        demand, layout, threads.value, processes, group.value, slots, slot_nbytes, scratch, (*plan.reasons, budget)
    )


def _place(transform: Transform) -> str:
    return "thread" if transform.where == "either" else transform.where


def _why_there(transform: Transform) -> str:
    return "no link to cross: done while the rows are in the cache" if transform.where == "either" else "as asked"
