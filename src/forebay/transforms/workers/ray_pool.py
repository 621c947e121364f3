"""Ray workers that each hold one function, and answers that come whatever becomes of a worker or its node.

A worker is an actor with one CPU. When it is gone, another takes its place, wherever the cluster has room, and what
it had been given is given to whoever is there: tasks must therefore give the same answer however often they are run.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import ray
from ray import cloudpickle
from ray import exceptions as lost

from forebay.errors import ClusterError, FeedClosedError, PipelineError, WorkerError
from forebay.transforms.workers.pickling import name_of
from forebay.transforms.workers.ray_actor import FarWork, Hello, Question
from forebay.transforms.workers.ray_actor_handle import Member
from forebay.transforms.workers.ray_cluster import TASKS_A_WORKER

__all__ = ["RayPool"]

DEATHS_A_TASK = 5  # of workers that ran the same task: it is to blame, then
EARLY_DEATHS = 20  # one after the other, of workers that never began
PATIENCE_SECONDS = 120.0  # while there is not a single worker
RELEASE_SECONDS = 1.0  # for the CPUs of workers that were ended to be free again
WAKE_SECONDS = 10.0  # how long a thread waits before it looks whether anybody still wants the answer

_LOST = (
    lost.RayActorError,
    lost.WorkerCrashedError,
    lost.NodeDiedError,
    lost.ObjectLostError,
    lost.OutOfMemoryError,
    lost.RaySystemError,
)


class RayPool:
    """Workers that hold `work`; `run` may be called from any number of threads."""

    def __init__(self, work: FarWork, workers: int) -> None:
        self._name = name_of(work)
        self._payload = ray.put(_dump(work))
        self._changed = threading.Condition()
        self._closed = False
        self._fatal: Exception | None = None
        self._lost = self._retried = self._early_deaths = 0
        self._in_flight_nbytes = self._most_in_flight_nbytes = 0
        self._members = [self._start() for _ in range(workers)]

    def run(self, make: Callable[[Hello], Question], *, nbytes: int) -> tuple[list[Any], Hello]:
        """The answers to what `make` says to ask a worker, and whose they are; `nbytes` is what all take together.

        `make` is called anew when the worker it was made for is lost.
        """
        deaths = 0
        while True:
            member, ticket = self._take()
            self._count(nbytes)
            try:
                answers = self._ask(member, make(member.greeting))
            except _LOST as error:
                deaths += self._lose(member, ticket, error)
                if deaths == DEATHS_A_TASK:
                    raise WorkerError(self._blame(member, error)) from error
            else:
                return answers, member.greeting
            finally:
                self._count(-nbytes)
                self._give_back(member, ticket)

    def counts(self) -> dict[str, int]:
        """How it goes."""
        with self._changed:
            return {
                "workers": sum(member.ready for member in self._members),
                "lost_workers": self._lost,
                "retried_tasks": self._retried,
                "in_flight_nbytes": self._in_flight_nbytes,
                "most_in_flight_nbytes": self._most_in_flight_nbytes,
            }

    def close(self) -> None:
        """End every worker, and wait a moment for their CPUs: the next feed counts what is free. Waiters are told."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify_all()
        held, free = sum(member.ready for member in self._members), _free_cpus()
        for member in self._members:
            member.kill()
        until = time.monotonic() + RELEASE_SECONDS
        while _free_cpus() < free + held and time.monotonic() < until:
            time.sleep(0.02)

    # Asking

    def _take(self) -> tuple[Member, object]:
        """The worker with the least to do, as soon as there is one."""
        ticket, patient_until = object(), time.monotonic() + PATIENCE_SECONDS
        with self._changed:
            while True:
                self._raise_if_over()
                self._replace_gone()
                found = [member for member in self._members if member.ready and len(member.tickets) < TASKS_A_WORKER]
                if found:
                    member = min(found, key=lambda one: len(one.tickets))
                    member.tickets.append(ticket)
                    return member, ticket
                self._changed.wait(WAKE_SECONDS)
                if any(member.ready for member in self._members):
                    patient_until = time.monotonic() + PATIENCE_SECONDS
                elif time.monotonic() > patient_until:
                    raise ClusterError(self._told_nobody())

    def _ask(self, member: Member, question: Question) -> list[Any]:
        references = member.ask(question)
        while True:
            with suppress(lost.GetTimeoutError):
                answers: list[Any] = ray.get(references, timeout=WAKE_SECONDS)
                return answers
            with self._changed:
                self._raise_if_over()

    def _give_back(self, member: Member, ticket: object) -> None:
        with self._changed:
            if not member.gone:  # where it is, the first ticket still tells what it was at work on
                member.tickets.remove(ticket)
            self._changed.notify_all()

    def _lose(self, member: Member, ticket: object, error: Exception) -> bool:
        """Count a lost answer; whether this very task was being run as its worker went."""
        with self._changed:
            self._raise_if_over()
            self._retried += 1
            if isinstance(error, lost.ObjectLostError):  # the worker may be well
                return True
            if not member.gone:
                member.gone = True
                self._lost += 1
        return member.tickets[0] is ticket

    def _count(self, nbytes: int) -> None:
        with self._changed:
            self._in_flight_nbytes += nbytes
            self._most_in_flight_nbytes = max(self._most_in_flight_nbytes, self._in_flight_nbytes)

    def _raise_if_over(self) -> None:
        if self._closed:
            raise FeedClosedError(f"the feed was closed while Ray workers ran {self._name}.")
        if self._fatal is not None:  # a fresh one for each thread: they add notes to it
            raise type(self._fatal)(*self._fatal.args) from self._fatal.__cause__
        if not ray.is_initialized():
            raise ClusterError("this program left its Ray cluster (ray.shutdown) while a feed worked there.")

    # Starting; replacing is left to threads that ask, since Ray's own thread tells of a death

    def _start(self) -> Member:
        return Member(self._payload, self._greet)

    def _replace_gone(self) -> None:
        for place, member in enumerate(self._members):
            if member.gone:
                member.kill()  # one that only cannot be reached must not go on
                self._members[place] = self._start()

    def _greet(self, member: Member, answer: Hello | Exception) -> None:
        """A worker has presented itself, or never will."""
        with self._changed:
            if self._closed:
                return
            if isinstance(answer, Exception):
                self._lost += 1
                self._early_deaths += 1
                member.gone = True
                self._fatal = self._fatal or self._judge_death(answer)
            else:
                self._early_deaths = 0
                self._fatal = self._fatal or member.judge(answer, self._name)
                member.greeting = answer
            self._changed.notify_all()

    def _judge_death(self, error: Exception) -> Exception | None:
        if getattr(error, "actor_init_failed", False):
            return ClusterError(
                f"a Ray worker could not start: {error}. Every node needs the same Python, Ray and forebay, or a "
                "runtime_env that brings them: ray.init(runtime_env={'pip': ['forebay']})."
            )
        if self._early_deaths >= EARLY_DEATHS:
            return WorkerError(f"{EARLY_DEATHS} Ray workers died before they could begin; the last: {error}")
        return None

    def _blame(self, member: Member, error: Exception) -> str:
        return (
            f"{DEATHS_A_TASK} Ray workers died, each as it ran {self._name} on the same rows; the last was the "
            f'{member.greeting}: {error}. Run it with where="thread" on these rows to find the place; if memory ran '
            "out, make batches smaller."
        )

    def _told_nobody(self) -> str:
        cpus = ray.cluster_resources().get("CPU", 0)
        return (
            f"no Ray worker could be started in {PATIENCE_SECONDS:.0f} s: {_free_cpus():g} of the cluster's {cpus:g} "
            "CPUs are free. Close what holds them, another feed perhaps; or share them out with map(..., workers=n); "
            "or add nodes."
        )


def _free_cpus() -> float:
    """What nobody uses; nothing where this program has left its cluster, or that does not answer."""
    if not ray.is_initialized():
        return 0.0
    try:
        return float(ray.available_resources().get("CPU", 0))
    except Exception:  # RpcError and whatever else comes of a cluster that is going down
        return 0.0


def _dump(work: FarWork) -> bytes:
    try:
        payload: bytes = cloudpickle.dumps(work)
        return payload
    except Exception as error:  # PicklingError, TypeError or what an object of the user's raises
        raise PipelineError(
            f"{name_of(work)} cannot be sent to Ray workers: {error}. Leave locks, open files and the like out of it, "
            'or run it with where="thread".'
        ) from error
