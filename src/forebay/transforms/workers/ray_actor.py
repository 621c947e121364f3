"""What a Ray worker runs: one function, opened once, called for every task."""

import os
import pickle
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import ray

from forebay.core import registry
from forebay.transforms.workers.pickling import Failure

__all__ = ["FarWork", "Hello", "Question", "RayWorker", "versions"]


class FarWork(Protocol):
    """What is sent to a worker once."""

    @property
    def name(self) -> str: ...
    def open(self) -> "OpenedWork":
        """Called on the worker, before its first task."""
        ...


class OpenedWork(Protocol):
    """What a worker calls; an error of the user's is a part of the answer, not raised."""

    @property
    def lacks(self) -> str:
        """What it could not open there, and why; nothing where all is well."""
        ...

    def __call__(self, task: Any, stored: Any, pieces: Sequence[Any]) -> Any:
        """As many values as the question has answers: a list, where that is not one."""
        ...


@dataclass(frozen=True, slots=True)
class Question:
    """What a worker is asked."""

    task: Any
    references: list[Any] = field(default_factory=list)  # of what it is to fetch from Ray's object store
    pieces: Sequence[Any] = ()  # what belongs to the task, and is sent beside it
    answers: int = 1


@dataclass(frozen=True, slots=True)
class Hello:
    """How a worker presents itself."""

    node: str
    node_id: str
    pid: int
    versions: dict[str, str]
    failure: Failure | None  # why the work could not be loaded
    lacks: str

    def __str__(self) -> str:
        return f"Ray worker (pid {self.pid} on {self.node})"


def versions() -> dict[str, str]:
    """What must be the same on every node."""
    python = ".".join(platform.python_version_tuple()[:2])
    return {"Python": python, "Ray": ray.__version__, "forebay": registry.version()}


class RayWorker:
    """The body of an actor."""

    def __init__(self, payload: bytes) -> None:
        self._work: OpenedWork | None = None
        self._failure: Failure | None = None
        self._references: list[Any] = []
        self._stored: list[Any] | None = None
        try:
            self._work = pickle.loads(payload).open()
        except BaseException as error:
            self._failure = Failure.of(error)

    def hello(self) -> Hello:
        lacks = self._work.lacks if self._work is not None else ""
        node_id = ray.get_runtime_context().get_node_id()
        return Hello(ray.util.get_node_ip_address(), node_id, os.getpid(), versions(), self._failure, lacks)

    def run(self, task: Any, references: list[Any], *pieces: Any) -> Any:
        """Do a task. References come in a list, since Ray would fetch bare ones anew for each task, for half a ms."""
        assert self._work is not None
        if references != self._references:
            self._references, self._stored = references, ray.get(references[0]) if references else None
        return self._work(task, self._stored, pieces)
