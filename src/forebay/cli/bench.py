"""`forebay bench`: compare Forebay with tf.data, DataLoader, Grain and others on this machine.

By default it measures loaders that deliver batches in host memory. `--device cuda` measures batches on a GPU.
"""

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path

from rich.console import Console

from forebay.cli.console import error_console, print_json, report_progress, result_console
from forebay.core.json_checks import parse_json, read_bounded
from forebay.measure.bench.cases.cpu import CASES
from forebay.measure.bench.cases.gpu import GPU_CASES
from forebay.measure.bench.gpu_facts import gpu_facts
from forebay.measure.bench.meters import RunSettings
from forebay.measure.bench.model import Case, select_cases, with_fewer_rows
from forebay.measure.bench.results import BenchResults
from forebay.measure.bench.results_file import from_json, to_json
from forebay.measure.bench.run import run_cases
from forebay.measure.bench.table import render

__all__ = ["add_arguments", "run"]


# GPU time is expensive, so samples are shorter than on the CPU. With these settings, all GPU cases take 6 minutes.
GPU_SETTINGS = RunSettings(seconds=0.4, warm_up_seconds=0.6, repeats=3)
QUICK_SETTINGS = RunSettings(seconds=0.2, warm_up_seconds=0.1, repeats=3)  # for --quick
MAX_RESULT_NBYTES = 16 << 20  # 16 MiB, the limit for --show; a file with the results of all cases has 200 KB
QUICK_FACTOR = 10  # --quick divides the number of rows by this factor


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), default="cpu", help="where the loaders deliver batches (default: cpu)"
    )
    parser.add_argument("--case", action="append", default=[], metavar="NAME", help="run only this case; repeatable")
    parser.add_argument(
        "--contender",
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="run only contenders with NAME in their name or label, and the baseline; repeatable",
    )
    parser.add_argument("--quick", action="store_true", help="use less data and less time, for a first impression")
    parser.add_argument(
        "--repeats",
        type=_parse_positive,
        metavar="N",
        help="number of samples of each loader; the table shows their medians",
    )
    parser.add_argument(
        "--targets", action="store_true", help="also show the project's targets and whether they are met"
    )
    parser.add_argument("--list", action="store_true", help="list cases and contenders without measuring")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the results to FILE as JSON")
    parser.add_argument("--show", type=Path, metavar="FILE", help="show saved results without measuring")


def run(arguments: argparse.Namespace) -> int:
    try:
        all_cases = GPU_CASES if arguments.device == "cuda" else CASES
        cases = select_cases(all_cases, case_names=arguments.case, contenders=arguments.contender)
        results = _read_results(arguments.show) if arguments.show else None
    except (OSError, ValueError) as error:
        _print_error(f"forebay bench: {error}")
        return 2
    if arguments.list:
        return _list_cases(cases)
    if results is None and arguments.device == "cuda" and not gpu_facts():
        _print_error("forebay bench: CUDA finds no usable GPU. Omit --device to measure on the CPU.")
        return 2
    return _print_results(results or _measure(cases, arguments), arguments)


def _read_results(path: Path) -> BenchResults:
    try:
        document = parse_json(read_bounded(path, max_nbytes=MAX_RESULT_NBYTES))
    except (OSError, ValueError) as error:
        raise ValueError(f"cannot read {path}: {error}. Pass a file that `forebay bench --save` wrote.") from error
    try:
        results = from_json(document)
        for part in render(results, targets=True):  # rendering raises an error if values contradict each other
            Console(file=StringIO()).print(part)
        to_json(results)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is not a file of bench results: {error}") from error
    return results


def _measure(cases: list[Case], arguments: argparse.Namespace) -> BenchResults:
    default_settings = GPU_SETTINGS if arguments.device == "cuda" else RunSettings()
    settings = QUICK_SETTINGS if arguments.quick else default_settings
    if arguments.repeats:
        settings = RunSettings(settings.seconds, settings.warm_up_seconds, arguments.repeats)
    selected = [with_fewer_rows(case, QUICK_FACTOR) for case in cases] if arguments.quick else cases
    with _reserve_file(arguments.save), report_progress("measuring") as report:
        return run_cases(selected, settings, device=arguments.device, quick=arguments.quick, report=report)


@contextmanager
def _reserve_file(file: Path | None) -> Iterator[None]:
    """Create the file before the measurement, so that a bad path raises OSError at once.

    If the measurement fails or is interrupted, remove the file unless it existed before.
    """
    if file is None:
        yield
        return
    is_new = not file.exists()
    file.touch()
    try:
        yield
    except BaseException:
        if is_new:
            file.unlink(missing_ok=True)
        raise


def _print_results(results: BenchResults, arguments: argparse.Namespace) -> int:
    """Print and save the results.

    Return the exit code: 0, or 2 if no loader was measured.
    """
    document = to_json(results)
    if arguments.json:
        print_json(document)
    else:
        for part in render(results, targets=arguments.targets):
            result_console().print(part)
    if arguments.save:  # after printing, so that a full disk does not lose the results
        arguments.save.write_text(json.dumps(document, indent=2) + "\n")
    return 0 if any(row.status == "measured" for row in results.rows) else 2


def _list_cases(cases: list[Case]) -> int:
    for case in cases:
        result_console().print(f"{case.name}: {case.title}", style="bold")
        for entry in case.entries:
            result_console().print(f"  {entry.label} ({entry.contender})")
    return 0


def _parse_positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def _print_error(line: str) -> None:
    error_console().print(line, markup=False)
