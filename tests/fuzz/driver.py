"""Distributes cases to worker processes, and survives their crashes and hangs."""

import json
import os
import queue
import select
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from tests.fuzz.verdict import Kind, Verdict

__all__ = ["FuzzPlan", "FuzzedCase", "run_cases"]

CASE_SECONDS = 60.0  # a case takes milliseconds; a busy machine may take a thousand times as long
START_SECONDS = 300.0  # the first case of each format in a worker also imports libraries and makes the samples
UNIT_CASES = 50  # cases of one format that a worker takes at a time
WORKER_CASES = 3000  # cases after which a new process replaces a worker, so that leaks do not add up
_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class FuzzPlan:
    """The cases of a run. `counts` has the number of cases of each format."""

    counts: dict[str, int]
    seed: int
    jobs: int
    folder: Path  # for the folders of the workers, and for the inputs of failed cases
    guided: bool = False
    first: int = 0  # number of the first case of each format


@dataclass(frozen=True, slots=True)
class FuzzedCase:
    """One case with its verdict."""

    format: str
    index: int
    verdict: Verdict


def run_cases(plan: FuzzPlan, report: Callable[[FuzzedCase], None]) -> None:
    """Run all cases, and call `report` for each. Several threads call it, one at a time."""
    units: queue.SimpleQueue[tuple[str, range]] = queue.SimpleQueue()
    for unit in _units(plan):
        units.put(unit)
    lock, errors = threading.Lock(), list[BaseException]()

    def serve(number: int) -> None:
        try:
            with _WorkerProcess(plan, plan.folder / f"worker-{number}") as worker:
                while not units.empty():
                    for case in worker.run_unit(*units.get()):
                        with lock:
                            report(case)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=serve, args=(number,)) for number in range(plan.jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def _units(plan: FuzzPlan) -> Iterator[tuple[str, range]]:
    """Yield the units of all formats by turns. Every part of a run then covers all formats."""
    columns: list[Sequence[tuple[str, range]]] = []
    for name, count in plan.counts.items():
        stop = plan.first + count
        starts = range(plan.first, stop, UNIT_CASES)
        columns.append([(name, range(start, min(start + UNIT_CASES, stop))) for start in starts])
    for turn in range(max(map(len, columns), default=0)):
        yield from (unit for column in columns for unit in islice(column, turn, turn + 1))


class _WorkerProcess:
    """A worker process that is replaced when it ends."""

    def __init__(self, plan: FuzzPlan, base: Path) -> None:
        self._plan, self._base = plan, base
        self._log = base.with_suffix(".log")
        self._process: subprocess.Popen[bytes] | None = None
        self._served = 0
        self._started_formats: set[str] = set()

    def __enter__(self) -> "_WorkerProcess":
        self._base.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *error: object) -> None:
        self._end()
        shutil.rmtree(self._base, ignore_errors=True)

    def run_unit(self, format_name: str, indices: Iterable[int]) -> Iterator[FuzzedCase]:
        """Run the cases of one format. Keep the input of each failed case."""
        for index in indices:
            verdict = self._run(format_name, index)
            if verdict.kind.is_failure:
                self._save(format_name, index, verdict)
            yield FuzzedCase(format_name, index, verdict)

    def _run(self, format_name: str, index: int) -> Verdict:
        if self._process is None or self._served >= WORKER_CASES:
            self._end()
            self._start()
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        self._served += 1
        process.stdin.write(json.dumps({"format": format_name, "index": index}).encode() + b"\n")
        process.stdin.flush()
        is_first = format_name not in self._started_formats
        self._started_formats.add(format_name)
        ready, _, _ = select.select([process.stdout], [], [], START_SECONDS if is_first else CASE_SECONDS)
        if not ready:
            process.send_signal(signal.SIGABRT)  # faulthandler writes the stacks of all threads
            process.wait(10)
            return Verdict(Kind.HANG, self._end_with_log())
        answer = process.stdout.readline()
        if not answer:
            status = process.wait()
            return Verdict(Kind.CRASH, f"exit status {status}: {self._end_with_log()}")
        kind, detail = json.loads(answer)
        return Verdict(Kind(kind), detail)

    def _start(self) -> None:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(_ROOT / "src"), str(_ROOT)]), "COLUMNS": "90"}
        mode = "guided" if self._plan.guided else "plain"
        command = [sys.executable, "-m", "tests.fuzz.worker", str(self._plan.seed), str(self._base), mode]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, cwd=_ROOT, env=environment, stderr=log, **pipes)
        self._served, self._started_formats = 0, set()

    def _end_with_log(self) -> str:
        """End the process. Return the first line of Forebay in its log, and the last line of the log."""
        self._end()
        lines = self._log.read_text(errors="replace").splitlines()
        places = [line.strip() for line in lines if "/src/forebay/" in line][:1]
        return "; ".join([*places, *lines[-1:]])[:300] if lines else "no output"

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _save(self, format_name: str, index: int, verdict: Verdict) -> None:
        folder = self._plan.folder / "failures" / f"{format_name}-{self._plan.seed}-{index}"
        shutil.copytree(self._base / "case", folder, dirs_exist_ok=True, symlinks=True)
        (folder / "verdict.txt").write_text(f"{verdict.kind}: {verdict.detail}\n")
