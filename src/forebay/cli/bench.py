"""`forebay bench`: this feed beside tf.data, DataLoader, Grain and others, on this machine, in one table.

`--device cuda` measures how batches reach a GPU; without it, how they reach the CPU.
"""

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from forebay.cli.console import console, print_json, talk
from forebay.measure.bench.cases.cpu import CASES
from forebay.measure.bench.cases.gpu import GPU_CASES
from forebay.measure.bench.choose import choose
from forebay.measure.bench.gpu_facts import gpu_facts
from forebay.measure.bench.meters import Pace
from forebay.measure.bench.model import Case, quicker
from forebay.measure.bench.results import Results
from forebay.measure.bench.results_file import from_json, to_json
from forebay.measure.bench.run import run_cases
from forebay.measure.bench.table import render

__all__ = ["HELP", "NAME", "add_arguments", "run"]

NAME = "bench"
HELP = "measure this feed beside tf.data, DataLoader, Grain, ... on this machine (ten minutes; --quick takes two)"

GPU = Pace(seconds=0.4, warm_up_seconds=0.6, repeats=3)  # six minutes in all: time on a GPU is dear
QUICK = Pace(seconds=0.2, warm_up_seconds=0.1, repeats=3)
QUICK_FACTOR = 10  # times less data


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), default="cpu", help="where batches are wanted (default: cpu)"
    )
    parser.add_argument("--case", action="append", default=[], metavar="NAME", help="only this case; may be repeated")
    parser.add_argument(
        "--contender",
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="only contenders named so, beside the baseline; may be repeated",
    )
    parser.add_argument("--quick", action="store_true", help="less data and less time, for a first look")
    parser.add_argument("--repeats", type=_positive, metavar="N", help="rounds to take the median of")
    parser.add_argument("--targets", action="store_true", help="show what this project promises beside what it gave")
    parser.add_argument("--list", action="store_true", help="list cases and contenders, measure nothing")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the results as JSON to a file")
    parser.add_argument("--show", type=Path, metavar="FILE", help="show saved results, measure nothing")


def run(arguments: argparse.Namespace) -> int:
    try:
        known = GPU_CASES if arguments.device == "cuda" else CASES
        cases = choose(known, case_names=arguments.case, contenders=arguments.contender)
        results = from_json(json.loads(arguments.show.read_text())) if arguments.show else None
    except (OSError, ValueError) as error:
        where = f"{arguments.show} is not a file of results: " if arguments.show else ""
        _say(f"forebay bench: {where}{error}")
        return 2
    if arguments.list:
        return _list(cases)
    if results is None and arguments.device == "cuda" and not gpu_facts():
        _say("forebay bench: no GPU that CUDA can use is here. Leave --device out to measure on the CPU.")
        return 2
    return _report(results or _measure(cases, arguments), arguments)


def _measure(cases: list[Case], arguments: argparse.Namespace) -> Results:
    full = GPU if arguments.device == "cuda" else Pace()
    pace = QUICK if arguments.quick else full
    if arguments.repeats:
        pace = Pace(pace.seconds, pace.warm_up_seconds, arguments.repeats)
    chosen = [quicker(case, QUICK_FACTOR) for case in cases] if arguments.quick else cases
    with _room_for(arguments.save):
        return run_cases(chosen, pace, device=arguments.device, quick=arguments.quick, say=_say)


@contextmanager
def _room_for(file: Path | None) -> Iterator[None]:
    """What cannot be written is known before ten minutes of measuring; if those are cut short, nothing stays behind."""
    if file is None:
        yield
        return
    made = not file.exists()
    file.touch()
    try:
        yield
    except BaseException:
        if made:
            file.unlink(missing_ok=True)
        raise


def _report(results: Results, arguments: argparse.Namespace) -> int:
    data = to_json(results)
    if arguments.json:
        print_json(data)
    else:
        for part in render(results, targets=arguments.targets):
            console().print(part)
    if arguments.save:  # last, so that a full disk does not take with it what was measured
        arguments.save.write_text(json.dumps(data, indent=2) + "\n")
    return 0 if any(row.status == "measured" for row in results.rows) else 2


def _list(cases: list[Case]) -> int:
    for case in cases:
        console().print(f"{case.name}: {case.title}", style="bold")
        for entry in case.entries:
            console().print(f"  {entry.label} ({entry.contender})")
    return 0


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def _say(line: str) -> None:
    talk().print(line, markup=False)
