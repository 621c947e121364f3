"""Takes the turns: all entries of a case set up at once, then one sample each, round after round."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean
from typing import Any, TypeAlias

from forebay.core.machine import Machine, installed_versions
from forebay.measure.bench.contenders import CONTENDERS
from forebay.measure.bench.data import write_file
from forebay.measure.bench.gpu_facts import gpu_facts, peer_versions
from forebay.measure.bench.lane import Lane
from forebay.measure.bench.meters import Pace
from forebay.measure.bench.model import Case, Entry
from forebay.measure.bench.others import taken_share
from forebay.measure.bench.results import CaseResult, Results

__all__ = ["Say", "run_cases"]

Say: TypeAlias = Callable[[str], None]  # where progress is told


def run_cases(
    cases: Sequence[Case], pace: Pace, *, device: str = "cpu", quick: bool = False, say: Say = lambda line: None
) -> Results:
    """Measure every case, one after the other."""
    lanes = [[Lane(entry, timeout_seconds=case.timeout_seconds) for entry in case.entries] for case in cases]
    results = tuple(_run_case(case, group, pace, say) for case, group in zip(cases, lanes, strict=True))
    consumer = next((lane.consumer for group in lanes for lane in group if lane.consumer), "")
    machine, versions = asdict(Machine.here()), installed_versions()
    if device == "cuda":
        machine, versions = machine | gpu_facts(), versions | peer_versions()
    return Results(machine, versions, pace, quick, consumer, results)


def _run_case(case: Case, lanes: Sequence[Lane], pace: Pace, say: Say) -> CaseResult:
    with tempfile.TemporaryDirectory(prefix="forebay-bench-") as folder, ExitStack() as stack:
        for lane in lanes:
            stack.callback(lane.close)
        say(f"{case.name}: setting up")
        paths = {kind: str(write_file(case.work, kind, Path(folder))) for kind in case.files}
        _set_up(case, lanes, paths, pace)
        taken = _take_turns(case, lanes, pace, say)
        for lane in lanes:
            lane.hang_up()
        return CaseResult(case, tuple(lane.row for lane in lanes), fmean(taken) if taken else None)


def _set_up(case: Case, lanes: Sequence[Lane], paths: Mapping[str, str], pace: Pace) -> None:
    for lane in lanes:
        lane.start(_request(case, lane.entry, paths, pace))
    for lane in lanes:
        if lane.running:
            lane.ready()
    for lane in lanes:  # one by one, so that nobody warms up in another's noise
        if lane.running:
            lane.warm_up()


def _take_turns(case: Case, lanes: Sequence[Lane], pace: Pace, say: Say) -> list[float]:
    """What was taken from this machine before each round, while none of them runs."""
    taken = []
    for turn in range(pace.repeats):
        say(f"{case.name}: round {turn + 1} of {pace.repeats}")
        taken.append(taken_share())
        for lane in lanes:
            if lane.wants_more(pace.repeats):
                lane.sample()
    return taken


def _request(case: Case, entry: Entry, paths: Mapping[str, str], pace: Pace) -> dict[str, Any]:
    path = paths.get(str(entry.options.get("file")), "")
    work = replace(case.work, path=path, options={**case.work.options, **entry.options})
    return {
        "module": CONTENDERS[entry.contender].module,
        "meter": case.meter,
        "work": asdict(work),
        "pace": asdict(pace),
    }
