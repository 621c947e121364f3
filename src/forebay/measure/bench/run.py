"""The runner: it sets up all entries of a case, then samples them in turn."""

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean
from typing import Any, TypeAlias

from forebay.core.machine import Machine, installed_versions
from forebay.core.provenance import provenance
from forebay.measure.bench.contender_process import ContenderFailed, ContenderProcess
from forebay.measure.bench.contenders import CONTENDERS
from forebay.measure.bench.data import write_file
from forebay.measure.bench.gpu_facts import gpu_facts, gpu_package_versions
from forebay.measure.bench.meters import RunSettings
from forebay.measure.bench.model import Case, Entry, Skip
from forebay.measure.bench.results import BenchResults, CaseResult, ResultRow, Status

__all__ = ["EntryRun", "ReportProgress", "cpu_steal_share", "run_cases"]

ReportProgress: TypeAlias = Callable[[str], None]  # receives one line of progress at a time

# Duration of `cpu_steal_share`. A few milliseconds are too short, because the kernel first favours a thread that wakes.
STEAL_SECONDS = 0.1
# A longer gap between two clock readings means that another process had the core. Such gaps last milliseconds.
STEAL_GAP_SECONDS = 100e-6


def run_cases(
    cases: Sequence[Case],
    settings: RunSettings,
    *,
    device: str = "cpu",
    quick: bool = False,
    report: ReportProgress = lambda line: None,
) -> BenchResults:
    """Measure the cases in turn, and return their results with facts about this machine."""
    origin = provenance()
    runs = [[EntryRun(entry, timeout_seconds=case.timeout_seconds) for entry in case.entries] for case in cases]
    results = tuple(_run_case(case, case_runs, settings, report) for case, case_runs in zip(cases, runs, strict=True))
    consumer = next((run.consumer for case_runs in runs for run in case_runs if run.consumer), "")
    machine, versions = asdict(Machine.detect()), installed_versions()
    if device == "cuda":
        machine, versions = machine | gpu_facts(), versions | gpu_package_versions()
    return BenchResults(machine, versions, settings, quick, consumer, results, **origin)


def cpu_steal_share(seconds: float = STEAL_SECONDS, clock: Callable[[], float] = time.perf_counter) -> float:
    """Measure the share of CPU time that other processes take from a spinning thread.

    The thread reads the clock in a loop. A long gap between two readings means that another process had the core.

    >>> readings = iter([0.0, 0.25, 0.25, 0.5, 0.5, 0.5])
    >>> cpu_steal_share(0.5, lambda: next(readings))
    1.0
    """
    start = last = clock()
    stolen = 0.0
    while last < start + seconds:
        now = clock()
        stolen += now - last if now - last > STEAL_GAP_SECONDS else 0.0
        last = now
    return stolen / (last - start)


class EntryRun:
    """One entry during a run: its process and its samples.

    A failure of the process appears in the result row of this entry and affects no other entry.
    """

    def __init__(self, entry: Entry, *, timeout_seconds: float) -> None:
        self.entry = entry
        self.consumer = ""  # describes the step of the busy consumer; known after the set-up
        self._timeout_seconds = timeout_seconds
        self._process: ContenderProcess | None = None
        self._status: Status = "measured"
        self._reason = ""
        self._samples: dict[str, list[float]] = {}
        self._sample_count = 0

    def start(self, request: Mapping[str, Any]) -> None:
        """Start the process and send the request to set up; `wait_until_ready` receives the reply."""
        contender = CONTENDERS[self.entry.contender]
        if contender.missing():
            self._end_without_result("not installed", contender.install)
            return
        self._process = ContenderProcess()
        with self._record_failures():
            self._process.send_request({"do": "set_up", **request})

    def wait_until_ready(self) -> None:
        with self._record_failures():
            self.consumer = self._receive_reply()["consumer"]

    def warm_up(self) -> None:
        with self._record_failures():
            self._request("warm_up")

    def sample(self) -> None:
        """Take one sample of every column."""
        with self._record_failures():
            for column, value in self._request("sample")["sample"].items():
                self._samples.setdefault(column, []).append(value)
            self._sample_count += 1

    def needs_sample(self, repeats: int) -> bool:
        return self.is_running and self._sample_count < (self.entry.repeats or repeats)

    @property
    def is_running(self) -> bool:
        return self._process is not None

    @property
    def row(self) -> ResultRow:
        samples = {column: tuple(values) for column, values in self._samples.items()}
        return ResultRow(self.entry.label, self.entry.contender, self._status, self._reason, samples)

    def stop_requests(self) -> None:
        """Tell the process to end, without waiting for its end."""
        if self._process is not None:
            self._process.stop_requests()

    def close(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None

    def _request(self, action: str) -> dict[str, Any]:
        if self._process is not None:
            self._process.send_request({"do": action})
        return self._receive_reply()

    def _receive_reply(self) -> dict[str, Any]:
        if self._process is None:
            raise ContenderFailed(self._reason)
        return self._process.receive_reply(timeout_seconds=self._timeout_seconds)

    def _end_without_result(self, status: Status, reason: str) -> None:
        self._status, self._reason = status, reason
        self._samples.clear()  # in the table, an incomplete row would look like a complete one
        self.close()

    @contextmanager
    def _record_failures(self) -> Iterator[None]:
        """End the entry without a result if the contender skips this workload or fails."""
        try:
            yield
        except Skip as reason:
            self._end_without_result("skipped", str(reason))
        except ContenderFailed as failure:
            self._end_without_result("failed", str(failure))


def _run_case(case: Case, runs: Sequence[EntryRun], settings: RunSettings, report: ReportProgress) -> CaseResult:
    with tempfile.TemporaryDirectory(prefix="forebay-bench-") as folder, ExitStack() as stack:
        for run in runs:
            stack.callback(run.close)
        report(f"{case.name}: setting up")
        paths = {kind: str(write_file(case.work, kind, Path(folder))) for kind in case.files}
        _set_up(case, runs, paths, settings)
        steal_shares = _run_rounds(case, runs, settings, report)
        for run in runs:  # tell all processes to end at the same time; the exit stack then waits for each
            run.stop_requests()
        return CaseResult(case, tuple(run.row for run in runs), fmean(steal_shares) if steal_shares else None)


def _set_up(case: Case, runs: Sequence[EntryRun], paths: Mapping[str, str], settings: RunSettings) -> None:
    for run in runs:
        run.start(_set_up_request(case, run.entry, paths, settings))
    for run in runs:
        if run.is_running:
            run.wait_until_ready()
    for run in runs:  # one after the other, so that no entry slows the warm-up of another
        if run.is_running:
            run.warm_up()


def _run_rounds(case: Case, runs: Sequence[EntryRun], settings: RunSettings, report: ReportProgress) -> list[float]:
    """Take one sample of each entry in each round.

    Return the CPU steal share before each round.
    """
    steal_shares = []
    for number in range(settings.repeats):
        report(f"{case.name}: round {number + 1} of {settings.repeats}")
        steal_shares.append(cpu_steal_share())  # the entries take no CPU time now: all of them wait for a request
        for run in runs:
            if run.needs_sample(settings.repeats):
                run.sample()
    return steal_shares


def _set_up_request(case: Case, entry: Entry, paths: Mapping[str, str], settings: RunSettings) -> dict[str, Any]:
    options = {**case.work.options, **entry.options}
    work = replace(case.work, path=paths.get(str(options.get("file")), ""), options=options)
    return {
        "contender": CONTENDERS[entry.contender].location,
        "meter": case.meter,
        "work": asdict(work),
        "settings": asdict(settings),
    }
