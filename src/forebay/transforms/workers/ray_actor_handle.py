"""One place in a pool of Ray workers: the actor, whether it is there, and what it was given."""

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import ray

from forebay.errors import ClusterError, PipelineError
from forebay.transforms.workers.ray_actor import Hello, Question, RayWorker, versions

__all__ = ["Member"]

# Spread, which also keeps a worker out of the placement group of a Ray Train worker that may hold the feed.
OPTIONS = {"num_cpus": 1, "max_restarts": 0, "scheduling_strategy": "SPREAD"}


class Member:
    """An actor from its start to its end. `greet` is called, on a thread of Ray's, with its hello or its death."""

    def __init__(self, payload: Any, greet: Callable[["Member", Hello | Exception], None]) -> None:
        self.tickets: list[object] = []  # of tasks it has, the one it runs first
        self.gone = False
        self._greeting: Hello | None = None
        self._actor = ray.remote(RayWorker).options(**OPTIONS).remote(payload)
        self._hello = self._actor.hello.remote()
        self._hello.future().add_done_callback(lambda future: greet(self, _outcome(future)))

    @property
    def ready(self) -> bool:
        return self._greeting is not None and not self.gone

    @property
    def greeting(self) -> Hello:
        assert self._greeting is not None
        return self._greeting

    @greeting.setter
    def greeting(self, greeting: Hello) -> None:
        self._greeting = greeting

    def ask(self, question: Question) -> list[Any]:
        """References of the answers."""
        given = (question.task, question.references, *question.pieces)
        if question.answers == 1:
            return [self._actor.run.remote(*given)]
        references: list[Any] = self._actor.run.options(num_returns=question.answers).remote(*given)
        return references

    def kill(self) -> None:
        """End the actor; one that is gone already does not mind."""
        self.gone = True
        with suppress(Exception):  # Ray was left, or never got so far: the actor ends with the program's part in it
            if ray.is_initialized():
                ray.kill(self._actor)

    def judge(self, hello: Hello, work_name: str) -> Exception | None:
        """Why no work can be given to it, or to any other."""
        here = versions()
        if hello.versions != here:
            return ClusterError(
                f"{hello} has {_told(hello.versions)}, the trainer {_told(here)}: install the same on every node."
            )
        if hello.failure is None:
            return None
        error = PipelineError(
            f"{hello} could not load {work_name}: {hello.failure.summary}. What it needs must be installed there, or "
            "brought by ray.init(runtime_env=...)."
        )
        error.__cause__ = hello.failure.rebuild(str(hello))
        return error


def _outcome(future: "Future[Hello]") -> Hello | Exception:
    try:
        return future.result()
    except Exception as error:
        return error


def _told(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())
