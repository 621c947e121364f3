"""A pool of Ray workers that survives the loss of workers and nodes.

A worker is an actor with one CPU. If a worker is lost, the pool starts another worker on any node with a free CPU, and
the other workers run the tasks of the lost worker again. A task must therefore return the same result each time.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import ray
from ray import cloudpickle
from ray import exceptions as ray_exceptions

from forebay.core.decision import function_name
from forebay.errors import ClusterError, FeedClosedError, PipelineError, WorkerError
from forebay.transforms.workers.ray_actor import RayJobProtocol, RayRequest, WorkerInfo
from forebay.transforms.workers.ray_actor_handle import ActorHandle, validate_worker
from forebay.transforms.workers.ray_cluster import TASKS_PER_WORKER

__all__ = ["RayPool"]

# If this many workers died while they ran one task, or lost its result, `run` raises an error.
MAX_DEATHS_PER_TASK = 5
MAX_EARLY_DEATHS = 20  # if this many workers in succession died before they were ready, the feed ends with an error
START_SECONDS = 120.0  # how long `run` waits while no worker is ready
RELEASE_SECONDS = 1.0  # longest time that `close` waits until the CPUs of its workers are free again
POLL_SECONDS = 10.0  # interval at which a waiting thread checks whether the pool was closed

_LOST_WORKER_ERRORS = (
    ray_exceptions.RayActorError,
    ray_exceptions.WorkerCrashedError,
    ray_exceptions.NodeDiedError,
    ray_exceptions.ObjectLostError,
    ray_exceptions.OutOfMemoryError,
    ray_exceptions.RaySystemError,
)


class RayPool:
    """Ray workers that apply one function (the job) to tasks. Any number of threads may call `run`."""

    def __init__(self, job: RayJobProtocol, workers: int) -> None:
        self._name = function_name(job)
        self._payload = ray.put(_dump_job(job))
        self._changed = threading.Condition()
        self._closed = False
        self._fatal_error: Exception | None = None
        self._lost_workers = self._retried_tasks = self._early_deaths = 0
        self._in_flight_nbytes = self._most_in_flight_nbytes = 0
        self._workers = [self._start_worker() for _ in range(workers)]

    def run(self, make_request: Callable[[WorkerInfo], RayRequest], *, nbytes: int) -> tuple[list[Any], WorkerInfo]:
        """Run one task, and return its results and the info of its worker.

        The pool calls `make_request` with the info of the chosen worker. If this worker is lost, the pool chooses
        another worker and calls `make_request` again. `nbytes` is the size of request and results together.
        """
        deaths = 0
        while True:
            worker, ticket = self._acquire_worker()
            self._count_in_flight(nbytes)
            try:
                results = self._wait_for_results(worker.submit(make_request(worker.info)))
            except _LOST_WORKER_ERRORS as error:
                deaths += self._count_lost_task(worker, ticket, error)
                if deaths == MAX_DEATHS_PER_TASK:
                    raise WorkerError(self._deadly_task_message(worker, error)) from error
            else:
                return results, worker.info
            finally:
                self._count_in_flight(-nbytes)
                self._release_worker(worker, ticket)

    def counts(self) -> dict[str, int]:
        """Return the counters for `stats()`."""
        with self._changed:
            return {
                "workers": sum(worker.is_ready for worker in self._workers),
                "lost_workers": self._lost_workers,
                "retried_tasks": self._retried_tasks,
                "in_flight_nbytes": self._in_flight_nbytes,
                "most_in_flight_nbytes": self._most_in_flight_nbytes,
            }

    def close(self) -> None:
        """End all workers, and wait briefly until their CPUs are free for the next feed.

        Threads that wait in `run` get `FeedClosedError`.
        """
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify_all()
        held_cpus, free_cpus = sum(worker.is_ready for worker in self._workers), _free_cpus()
        for worker in self._workers:
            worker.kill()
        deadline = time.monotonic() + RELEASE_SECONDS
        while _free_cpus() < free_cpus + held_cpus and time.monotonic() < deadline:
            time.sleep(0.02)

    # Running tasks

    def _acquire_worker(self) -> tuple[ActorHandle, object]:
        """Wait for a ready worker with fewer than `TASKS_PER_WORKER` tasks.

        Return the worker, and a ticket that identifies the new task.
        """
        ticket, deadline = object(), time.monotonic() + START_SECONDS
        with self._changed:
            while True:
                self._raise_if_unusable()
                self._replace_lost_workers()
                available = [
                    worker for worker in self._workers if worker.is_ready and len(worker.tickets) < TASKS_PER_WORKER
                ]
                if available:
                    worker = min(available, key=lambda worker: len(worker.tickets))
                    worker.tickets.append(ticket)
                    return worker, ticket
                self._changed.wait(POLL_SECONDS)
                if any(worker.is_ready for worker in self._workers):
                    deadline = time.monotonic() + START_SECONDS
                elif time.monotonic() > deadline:
                    raise ClusterError(_no_worker_message())

    def _wait_for_results(self, references: list[Any]) -> list[Any]:
        while True:
            with suppress(ray_exceptions.GetTimeoutError):
                results: list[Any] = ray.get(references, timeout=POLL_SECONDS)
                return results
            with self._changed:
                self._raise_if_unusable()

    def _release_worker(self, worker: ActorHandle, ticket: object) -> None:
        with self._changed:
            if not worker.is_lost:  # `_count_lost_task` needs the first ticket of a lost worker
                worker.tickets.remove(ticket)
            self._changed.notify_all()

    def _count_lost_task(self, worker: ActorHandle, ticket: object, error: Exception) -> bool:
        """Count a retry, and return whether the loss counts against this task.

        The loss counts if the worker was running this task, or if only the result of the task was lost. It does not
        count if the worker was running an earlier task. Mark the worker as lost, unless only the result was lost.
        """
        with self._changed:
            self._raise_if_unusable()
            self._retried_tasks += 1
            if isinstance(error, ray_exceptions.ObjectLostError):  # only the result is lost
                return True
            if not worker.is_lost:
                worker.is_lost = True
                self._lost_workers += 1
        return worker.tickets[0] is ticket

    def _count_in_flight(self, nbytes: int) -> None:
        with self._changed:
            self._in_flight_nbytes += nbytes
            self._most_in_flight_nbytes = max(self._most_in_flight_nbytes, self._in_flight_nbytes)

    def _raise_if_unusable(self) -> None:
        if self._closed:
            raise FeedClosedError(f"the feed was closed while Ray workers ran {self._name}. Create a new feed.")
        if self._fatal_error is not None:  # raise a new exception in each thread, because threads add notes to it
            raise type(self._fatal_error)(*self._fatal_error.args) from self._fatal_error.__cause__
        if not ray.is_initialized():
            raise ClusterError(
                "this program left its Ray cluster (ray.shutdown) while a feed used it. Close the feed first."
            )

    # Starting workers. A thread of Ray reports that a worker is ready or failed to start. Threads in `run` replace lost
    # workers.

    def _start_worker(self) -> ActorHandle:
        return ActorHandle(self._payload, self._on_worker_started)

    def _replace_lost_workers(self) -> None:
        for index, worker in enumerate(self._workers):
            if worker.is_lost:
                worker.kill()  # an unreachable worker may still run
                self._workers[index] = self._start_worker()

    def _on_worker_started(self, worker: ActorHandle, outcome: WorkerInfo | Exception) -> None:
        """Record that a worker is ready, or that it died before it was ready."""
        with self._changed:
            if self._closed:
                return
            if isinstance(outcome, Exception):
                self._lost_workers += 1
                self._early_deaths += 1
                worker.is_lost = True
                self._fatal_error = self._fatal_error or self._start_error(outcome)
            else:
                self._early_deaths = 0
                self._fatal_error = self._fatal_error or validate_worker(outcome, self._name)
                worker.info = outcome
            self._changed.notify_all()

    def _start_error(self, error: Exception) -> Exception | None:
        """Return the error that ends the feed; None if the pool should start another worker."""
        if getattr(error, "actor_init_failed", False):
            return ClusterError(
                f"a Ray worker could not start: {error}. Install the same Python, Ray and forebay on every node, or "
                "pass them in a runtime_env: ray.init(runtime_env={'pip': ['forebay']})."
            )
        if self._early_deaths >= MAX_EARLY_DEATHS:
            return WorkerError(
                f"{MAX_EARLY_DEATHS} Ray workers in succession died before they were ready. Check the memory and the "
                f"Ray logs of the nodes. The last error was: {error}"
            )
        return None

    def _deadly_task_message(self, worker: ActorHandle, error: Exception) -> str:
        return (
            f"{MAX_DEATHS_PER_TASK} Ray workers died, or lost their result, while they ran {self._name} on the same "
            f'rows. The last was the {worker.info}: {error}. Run these rows with where="thread" to find the cause. If '
            "memory ran out, use smaller batches."
        )


def _no_worker_message() -> str:
    cpus = ray.cluster_resources().get("CPU", 0)
    return (
        f"no Ray worker started within {START_SECONDS:.0f} s: {_free_cpus():g} of the cluster's {cpus:g} CPUs are "
        "free. Close other feeds or jobs on these CPUs, give each feed fewer workers with map(..., workers=n), or add "
        "nodes."
    )


def _free_cpus() -> float:
    """Return the number of free CPUs; 0 if the cluster does not answer."""
    if not ray.is_initialized():
        return 0.0
    try:
        return float(ray.available_resources().get("CPU", 0))
    except Exception:  # RpcError and other errors of a cluster that shuts down
        return 0.0


def _dump_job(job: RayJobProtocol) -> bytes:
    try:
        payload: bytes = cloudpickle.dumps(job)
        return payload
    except Exception as error:  # PicklingError, TypeError or an exception of a user's object
        why = str(error).rstrip(".")
        raise PipelineError(
            f"{function_name(job)} cannot be sent to Ray workers: {why}. Remove locks and open files "
            'from it, or run it with where="thread".'
        ) from error
