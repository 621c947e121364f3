"""Who makes the batches a loop waits for, and what more producers would win. Pure."""

from dataclasses import dataclass

from forebay.doctor.analyse.case import Case, Site
from forebay.doctor.analyse.costs import cost_of, won_by_overlap
from forebay.doctor.model.events import Event, Kind, Line

__all__ = ["SERIAL", "Stage", "cores_of", "producers_of", "stage_of", "won_by_workers", "workers_of"]

SERIAL = "mapped_at"  # a stage, and the detail that says where: TensorFlow's own operations, on one row at a time
LEAST_SHARE = 0.5  # of the wait: what takes less of it is not what the loop waits for
LEAST_SHARE_OF_GENERATOR = 0.1  # calling it for every row takes longer than many a row
HAND_OVER_SECONDS = 1e-4, 1e-3  # that a batch out of another process takes, at least and at most


@dataclass(frozen=True, slots=True)
class Stage:
    """What of the input takes the time: row, collate, map or generator in Python; a serial map; workers; the loader."""

    name: str
    seconds: float
    line: Line | None = None
    beside: bool = False  # on another thread of the process that trains, where one thread at a time runs Python

    @property
    def is_python(self) -> bool:
        return self.name not in (SERIAL, "workers", "loader")


def stage_of(case: Case, site: Site) -> Stage:
    """The user's own code where it takes most of the wait, on whatever thread it runs."""
    wait = cost_of(case, site.events)
    costs = [(_cost_beside(case, prepare), prepare) for prepare in case.of(Kind.PREPARE)]
    cost, slowest = max(costs, key=lambda pair: pair[0], default=(0.0, None))
    least = LEAST_SHARE_OF_GENERATOR if "generator" in site.values("loader") else LEAST_SHARE
    if slowest is not None and cost >= least * wait and cost > 0:
        assert case.steps is not None
        beside = all(event.thread != case.steps.thread for event in slowest.events)
        return Stage(str(next(iter(slowest.values("what")), "row")), cost, slowest.line, beside)
    if not costs and "tf.data" in site.values("loader") and (mapped := site.values(SERIAL)):
        return Stage(SERIAL, wait, case.line(mapped[0]))
    return Stage("workers" if workers_of(site) else "loader", wait)


def workers_of(site: Site) -> int:
    """Processes that make batches; none where nobody said."""
    return max((int(workers) for workers in site.values("workers") if workers), default=0)


def producers_of(site: Site) -> int:
    """Whoever makes batches beside the loop already: workers, or a thread that prefetches."""
    return workers_of(site) or int(any(site.values("prefetch")))


def cores_of(case: Case) -> int:
    return int(case.capture.machine.get("cores") or 1)


def won_by_workers(case: Case, site: Site, wait: float) -> tuple[float, float]:
    """At least and at most, with a worker for every core: a step cannot be shorter than its share of all the making.

    Where nobody works ahead, a batch takes the wait to make; else the loop runs at the pace of those who do, each busy
    all of the time.
    """
    producers = producers_of(site)
    making = case.step_seconds * producers if producers else wait
    least, most = (0.0, 0.0) if producers else HAND_OVER_SECONDS
    high = max(0.0, min(wait, case.step_seconds - making / cores_of(case)) - least)
    low = 0.0 if producers else won_by_overlap(case, wait)[0] - most
    return max(0.0, min(low, high)), high


def _cost_beside(case: Case, prepare: Site) -> float:
    assert case.steps is not None
    thread = case.steps.thread
    events: list[Event] = [event._replace(thread=thread) for event in prepare.events]
    return cost_of(case, events)
