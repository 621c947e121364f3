"""Processes that tests of the doctor wait for, a framework each: begun early, two side by side, each of them once."""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.support.paths import DOCTOR, ROOT

from forebay.doctor.model.capture import Capture

__all__ = ["SETTINGS", "WAITING", "Captures", "Processes"]

SIDE_BY_SIDE = 2
LONGEST_SECONDS = 900
WAITING = pytest.mark.timeout(3000)  # whichever is waited for, all others may come before it
# One thread each: where several wait for each other and have no core, a step takes as long as the machine likes.
SETTINGS = {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1"}
SETTINGS |= {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "KERAS_BACKEND": "tensorflow"}
# Files of cases, run by pytest; what is not named here is run by the framework's own name.
CASES = {
    "torch": tuple(f"capture/hooks/torch_{part}_cases" for part in ("tensor", "data", "untouched", "compile")),
    "jax": ("capture/hooks/jax_cases", "capture/hooks/jax_usage_cases"),
    "keras": ("capture/hooks/keras_cases", "keras_callback_cases"),
}


class Processes:
    """By name: `cases torch` runs pytest, `scripts torch` watches all scripts, `cases keras on jax` sets a backend.

    Whoever shares the folder shares what they leave there, so that of several workers one runs each of them.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pool = ThreadPoolExecutor(SIDE_BY_SIDE)
        self._begun: dict[str, Future[None]] = {}
        self._running: set[subprocess.Popen[str]] = set()
        with _held(folder / "lock"):
            if not (stand_in := folder / "site-packages").exists():
                stand_in.symlink_to(DOCTOR / "stand_in")  # by this name it is no code of the user's
        self.capture = cache(self._capture)

    def begin(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self._begun:
                self._begun[name] = self._pool.submit(self._run, name)

    def wait(self, name: str) -> None:
        """Until it has ended; whatever it complained of is raised here."""
        self.begin([name])
        self._begun[name].result()

    def kept(self, framework: str, script: str, kind: str) -> Path:
        """A file that was kept of a script."""
        self.wait(f"scripts {framework}")
        return self._folder / framework / f"{script}.{kind}"

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in [*self._running]:
            process.kill()
        self._pool.shutdown()

    def _capture(self, framework: str, script: str) -> Capture:
        return Capture.load(self.kept(framework, script, "capture"))

    def _run(self, name: str) -> None:
        ended = self._folder / f"{name}.said"
        with _held(self._folder / f"{name}.lock"):
            if not ended.exists():
                failed, said = self._said(name)
                ended.write_text(said if failed else "")
        complaint = ended.read_text()
        assert not complaint, complaint[-8000:]

    def _said(self, name: str) -> tuple[bool, str]:
        """Whether it failed, and all it printed."""
        what, framework, *backend = name.replace(" on ", " ").split()
        libraries = {"PYTHONPATH": str(self._folder / "site-packages")} if framework == "cupy" else {}
        settings = SETTINGS | libraries | ({"KERAS_BACKEND": backend[0]} if backend else {})
        arguments = self._scripts(framework) if what == "scripts" else _cases(framework)
        process = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            env=os.environ | settings,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._running.add(process)
        try:
            said, _ = process.communicate(timeout=LONGEST_SECONDS)
        finally:
            process.kill()
            self._running.discard(process)
        return process.returncode != 0, said or f"{name} ended with {process.returncode}"

    def _scripts(self, framework: str) -> list[str]:
        kept = self._folder / framework
        shutil.rmtree(kept, ignore_errors=True)  # of a worker that was stopped in the middle
        kept.mkdir()
        return ["tests.doctor.watch_scripts", framework, str(kept)]


class Captures:
    """Those of one framework, by script."""

    def __init__(self, processes: Processes, framework: str) -> None:
        self._processes, self._framework = processes, framework

    def __getitem__(self, script: str) -> Capture:
        return self._processes.capture(self._framework, script)


def _cases(framework: str) -> list[Any]:
    files = [str(DOCTOR / f"{name}.py") for name in CASES.get(framework, (f"capture/hooks/{framework}_cases",))]
    return ["pytest", "-q", "-p", "no:cacheprovider", *files]


@contextmanager
def _held(path: Path) -> Iterator[None]:
    """While no other process holds this file; one that dies lets go of it."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
