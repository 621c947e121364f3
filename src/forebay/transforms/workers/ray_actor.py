"""`RayWorker`: the Ray actor of a worker, which opens one job and runs its tasks.

A job is what a pool sends once to each worker: code that turns a task into a result, such as a map over some rows.
"""

import os
import pickle
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import ray

from forebay.core import registry
from forebay.transforms.workers.pickling import Failure

__all__ = ["OpenedRayJob", "RayJobProtocol", "RayRequest", "RayWorker", "WorkerInfo", "versions"]


class RayJobProtocol(Protocol):
    """A job that the pool sends once to each worker."""

    @property
    def name(self) -> str: ...
    def open(self) -> "OpenedRayJob":
        """Prepare the job on the worker, before its first task."""
        ...


class OpenedRayJob(Protocol):
    """A job that a worker has opened.

    If user code raises an exception, the job returns the exception as part of its result.
    """

    @property
    def missing_reason(self) -> str:
        """Reason why the worker cannot read the rows itself; "" if it can."""
        ...

    def __call__(self, task: Any, stored: Any, pieces: Sequence[Any]) -> Any:
        """Run a task and return its result.

        `stored` is the value of the request's reference, or None. If `RayRequest.num_returns` is not 1, the result is
        a list of that many values.
        """
        ...


@dataclass(frozen=True, slots=True)
class RayRequest:
    """One call of a worker."""

    task: Any
    references: list[Any] = field(default_factory=list)  # at most one reference to an object in Ray's store
    pieces: Sequence[Any] = ()  # data of the task, sent as separate arguments
    num_returns: int = 1  # number of values that the job returns


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """What a worker reports after its start."""

    node: str  # IP address of the worker's node
    node_id: str
    pid: int
    versions: dict[str, str]
    failure: Failure | None  # why the worker could not open the job; None if it could
    missing_reason: str  # see `OpenedRayJob`

    def __str__(self) -> str:
        return f"Ray worker (pid {self.pid} on {self.node})"


def versions() -> dict[str, str]:
    """Return the versions that must be the same on every node."""
    python = ".".join(platform.python_version_tuple()[:2])
    return {"Python": python, "Ray": ray.__version__, "forebay": registry.forebay_version()}


class RayWorker:
    """The class of the Ray actor.

    If the worker cannot open the job, `info` reports the failure.
    """

    def __init__(self, payload: bytes) -> None:
        self._job: OpenedRayJob | None = None
        self._failure: Failure | None = None
        self._references: list[Any] = []
        self._stored: list[Any] | None = None
        try:
            self._job = pickle.loads(payload).open()  # nosec B301  # from the driver of the cluster
        except BaseException as error:
            self._failure = Failure.of(error)

    def info(self) -> WorkerInfo:
        """Return where the worker runs and whether it has opened its job."""
        missing_reason = self._job.missing_reason if self._job is not None else ""
        node, node_id = ray.util.get_node_ip_address(), ray.get_runtime_context().get_node_id()
        return WorkerInfo(node, node_id, os.getpid(), versions(), self._failure, missing_reason)

    def run(self, task: Any, references: list[Any], *pieces: Any) -> Any:
        """Run a task and return its result.

        Callers pass references inside a list, so that Ray does not resolve them. The worker gets the value of a
        reference once and keeps it until a task has a different reference. Ray would get the value again for each task,
        which takes 0.5 ms.
        """
        assert self._job is not None
        if references != self._references:
            self._references, self._stored = references, ray.get(references[0]) if references else None
        return self._job(task, self._stored, pieces)
