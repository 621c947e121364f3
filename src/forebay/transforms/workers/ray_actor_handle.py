"""`ActorHandle`: one Ray actor of a pool, with its state and its tasks."""

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import ray

from forebay.errors import ClusterError, PipelineError
from forebay.transforms.workers.ray_actor import RayRequest, RayWorker, WorkerInfo, versions

__all__ = ["ActorHandle", "validate_worker"]

# "SPREAD" also keeps an actor out of the placement group of a Ray Train worker that runs the feed.
ACTOR_OPTIONS = {"num_cpus": 1, "max_restarts": 0, "scheduling_strategy": "SPREAD"}


class ActorHandle:
    """One actor, from its start to its end.

    When the worker is ready, a thread of Ray calls `on_started` with its info. If the worker dies before it is ready,
    the thread passes the exception instead.
    """

    def __init__(self, payload: Any, on_started: Callable[["ActorHandle", WorkerInfo | Exception], None]) -> None:
        # One object for each task that the actor runs or queues, in this order. The first is that of the running task.
        self.tickets: list[object] = []
        self.is_lost = False
        self._info: WorkerInfo | None = None
        self._actor = ray.remote(RayWorker).options(**ACTOR_OPTIONS).remote(payload)
        self._info_reference = self._actor.info.remote()
        self._info_reference.future().add_done_callback(lambda future: on_started(self, _result_or_error(future)))

    @property
    def is_ready(self) -> bool:
        return self._info is not None and not self.is_lost

    @property
    def info(self) -> WorkerInfo:
        assert self._info is not None
        return self._info

    @info.setter
    def info(self, info: WorkerInfo) -> None:
        self._info = info

    def submit(self, request: RayRequest) -> list[Any]:
        """Send a request and return the object references of its results."""
        arguments = (request.task, request.references, *request.pieces)
        if request.num_returns == 1:
            return [self._actor.run.remote(*arguments)]
        references: list[Any] = self._actor.run.options(num_returns=request.num_returns).remote(*arguments)
        return references

    def kill(self) -> None:
        """End the actor; do nothing if it has already ended."""
        self.is_lost = True
        # `ray.kill` fails if the program left the cluster or the actor never started. Ray then ends the actor itself.
        with suppress(Exception):
            if ray.is_initialized():
                ray.kill(self._actor)


def validate_worker(info: WorkerInfo, job_name: str) -> Exception | None:
    """Return an error if the worker cannot run the job, else None.

    The pool ends the feed after such an error, because every worker would fail in the same way.
    """
    own_versions = versions()
    if info.versions != own_versions:
        return ClusterError(
            f"{info} has {_format_versions(info.versions)}, but the trainer has {_format_versions(own_versions)}. "
            "Install the same versions on every node."
        )
    if info.failure is None:
        return None
    error = PipelineError(
        f"{info} could not load {job_name}: {info.failure.summary}. Install its dependencies on every node, or pass "
        "them with ray.init(runtime_env=...)."
    )
    error.__cause__ = info.failure.rebuild(str(info))
    return error


def _result_or_error(future: "Future[WorkerInfo]") -> WorkerInfo | Exception:
    try:
        return future.result()
    except Exception as error:
        return error


def _format_versions(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())
