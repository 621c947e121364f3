"""The Ray actor of a worker: loads one job and runs it for every task."""

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
    """A job that the pool sends to each worker once."""

    @property
    def name(self) -> str: ...
    def open(self) -> "OpenedRayJob":
        """Prepare the job on the worker, before its first task."""
        ...


class OpenedRayJob(Protocol):
    """A job on its worker.

    An exception of user code is part of the result and is not raised.
    """

    @property
    def missing_reason(self) -> str:
        """Reason why the worker cannot read the rows itself; empty if it can."""
        ...

    def __call__(self, task: Any, stored: Any, pieces: Sequence[Any]) -> Any:
        """Run a task and return its result.

        The result is one value, or a list of `RayRequest.num_returns` values if that is not 1.
        """
        ...


@dataclass(frozen=True, slots=True)
class RayRequest:
    """One call of a worker."""

    task: Any
    references: list[Any] = field(default_factory=list)  # object references that the worker fetches from Ray's store
    pieces: Sequence[Any] = ()  # data of the task, sent as separate arguments
    num_returns: int = 1


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """What a worker reports after its start."""

    node: str
    node_id: str
    pid: int
    versions: dict[str, str]
    failure: Failure | None  # why the job could not be loaded
    missing_reason: str

    def __str__(self) -> str:
        return f"Ray worker (pid {self.pid} on {self.node})"


def versions() -> dict[str, str]:
    """Return the versions that must be the same on every node."""
    python = ".".join(platform.python_version_tuple()[:2])
    return {"Python": python, "Ray": ray.__version__, "forebay": registry.forebay_version()}


class RayWorker:
    """The class of the Ray actor."""

    def __init__(self, payload: bytes) -> None:
        self._job: OpenedRayJob | None = None
        self._failure: Failure | None = None
        self._references: list[Any] = []
        self._stored: list[Any] | None = None
        try:
            self._job = pickle.loads(payload).open()
        except BaseException as error:
            self._failure = Failure.of(error)

    def info(self) -> WorkerInfo:
        """Report where the worker runs and whether it loaded its job."""
        missing_reason = self._job.missing_reason if self._job is not None else ""
        node, node_id = ray.util.get_node_ip_address(), ray.get_runtime_context().get_node_id()
        return WorkerInfo(node, node_id, os.getpid(), versions(), self._failure, missing_reason)

    def run(self, task: Any, references: list[Any], *pieces: Any) -> Any:
        """Run a task.

        The references come in a list: Ray would fetch bare references again for each task, which costs 0.5 ms.
        """
        assert self._job is not None
        if references != self._references:
            self._references, self._stored = references, ray.get(references[0]) if references else None
        return self._job(task, self._stored, pieces)
