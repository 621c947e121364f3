"""A worker process: reads case numbers from standard input, and writes one verdict per case.

The driver starts workers with `python -m tests.fuzz.worker SEED FOLDER MODE`; MODE is `plain` or `guided`. A crash or a
hang ends only the worker.
"""

import faulthandler
import gc
import json
import os
import resource
import sys
import tempfile
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz import remote
from tests.fuzz.case import Case, damage_files, make_case
from tests.fuzz.corpus import load_samples
from tests.fuzz.coverage import LineCoverage
from tests.fuzz.guard import Guard
from tests.fuzz.readers import READERS, ReadRows
from tests.fuzz.sample import Files, Sample
from tests.fuzz.verdict import Kind, Verdict, judge

__all__ = ["main"]

MEMORY_BUDGET_NBYTES = 256 << 20  # growth of the resident memory during one case
ADDRESS_NBYTES = 4 << 30  # growth of the address space; larger allocations fail at once
FEED_EVERY = 8  # every n-th case runs through a feed
MAX_POOL = 500  # inputs that `--guided` keeps for each format


class Worker:
    """Runs the cases of one process."""

    def __init__(self, seed: int, base: Path, *, guided: bool) -> None:
        sys.dont_write_bytecode = True  # the guard would report the file that an import writes
        self._seed, self._guard = seed, Guard(base)
        self._coverage = LineCoverage() if guided else None
        self._pools: dict[str, list[tuple[Sample, Files]]] = {}
        self._expected: dict[tuple[str, str], ReadRows | None] = {}
        self._is_limited = False

    def run(self, format_name: str, index: int) -> Verdict:
        """Run one case, and return its verdict."""
        if format_name == remote.FORMAT:
            self._guard.clear()
            with self._guard.watch():
                verdict = remote.run_case(self._seed, index, self._guard.folder)
            return self._with_harm(verdict)
        self._prepare(format_name)
        case = self._make_case(format_name, index)
        write_files(self._guard.folder, case.files)
        return self._measure(format_name, case, index)

    def _measure(self, format_name: str, case: Case, index: int) -> Verdict:
        before = _reset_peak_nbytes()
        expected = self._expected[format_name, case.sample.name]
        with self._guard.watch():
            verdict = judge(case, expected, lambda: self._read(case, through_feed=index % FEED_EVERY == 0))
        grown = _peak_nbytes() - before
        if self._coverage is not None and self._coverage.new_lines:
            self._pools[format_name] = [*self._pools[format_name][-MAX_POOL:], (case.sample, case.files)]
        if not verdict.kind.is_failure and grown > MEMORY_BUDGET_NBYTES:
            verdict = Verdict(Kind.MEMORY, f"{case.sample.name} ({verdict.kind}) took more memory than the budget")
        return self._with_harm(verdict)

    def _with_harm(self, verdict: Verdict) -> Verdict:
        harm = self._guard.find_harm()
        return Verdict(Kind.HARM, harm) if harm else verdict

    def _read(self, case: Case, *, through_feed: bool) -> ReadRows:
        read = READERS[case.sample.reader]
        if self._coverage is None:
            return read(self._guard.folder, case.sample, through_feed=through_feed)
        with self._coverage.record():
            return read(self._guard.folder, case.sample, through_feed=through_feed)

    def _make_case(self, format_name: str, index: int) -> Case:
        self._guard.clear()
        pool = self._pools.setdefault(format_name, [])
        if pool and index % 2:
            rng = Random(f"guided {self._seed} {format_name} {index}")
            sample, files = rng.choice(pool)
            damaged = damage_files(rng, sample, files)
            return Case(sample, damaged.files, forged=True)  # earlier damage may have recomputed checksums
        return make_case(format_name, self._seed, index)

    def _prepare(self, format_name: str) -> None:
        """Read the undamaged samples once, except attacks. The first read imports the libraries of the format."""
        if any(name == format_name for name, _ in self._expected):
            return
        _limit_address_space(None)
        for sample in load_samples(format_name):
            self._guard.clear()
            write_files(self._guard.folder, sample.files)
            is_attack = format_name == "attacks"
            read = READERS[sample.reader]
            self._expected[format_name, sample.name] = (
                None if is_attack else read(self._guard.folder, sample, through_feed=False)
            )
        gc.collect()
        gc.freeze()
        _limit_address_space(ADDRESS_NBYTES)


def write_files(folder: Path, files: Files) -> None:
    """Write the files of a case."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _limit_address_space(growth_nbytes: int | None) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = hard if growth_nbytes is None else _status_nbytes("VmSize") + growth_nbytes
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def _reset_peak_nbytes() -> int:
    """Make the current resident memory the peak, and return it."""
    Path("/proc/self/clear_refs").write_text("5")
    return _status_nbytes("VmRSS")


def _peak_nbytes() -> int:
    return _status_nbytes("VmHWM")


def _status_nbytes(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(name)


def main() -> None:
    """Serve until standard input is closed."""
    seed, base, guided = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "guided"
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries that print must not disturb the answers
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.enable()
    tempfile.tempdir = str(base / "case")
    worker = Worker(seed, base, guided=guided)
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        verdict = worker.run(request["format"], request["index"])
        print(json.dumps([verdict.kind, verdict.detail]), file=answers, flush=True)


if __name__ == "__main__":
    main()
