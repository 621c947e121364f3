"""`forebay demo`: compare four loaders, feed a framework, and profile a script.

The loaders read generated data. The script has a fault that the doctor should find.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.table import Table

import forebay as fb
from forebay.cli.console import error_console, print_json, report_progress, result_console
from forebay.cli.demo_doctor import FRAMEWORK_BATCH, feed_framework, find_framework, run_doctor
from forebay.core.spec import Array, format_nbytes
from forebay.errors import ForebayError

__all__ = ["add_arguments", "run"]


ROWS = 200_000  # of the generated data
WIDTH = 100  # numbers per row
BATCH = 32  # rows per batch
LOOP_ROWS = 20_000  # rows per epoch of `_stack_rows`; all rows would take too long
REPEATS = 5  # epochs of each loader; the table shows medians


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(arguments: argparse.Namespace) -> int:
    with report_progress("comparing loaders"), tempfile.TemporaryDirectory() as folder:
        data = np.random.default_rng(0).random((ROWS, WIDTH), dtype=np.float32)
        path = Path(folder) / "data.npy"
        np.save(path, data)
        speeds, decisions = _measure(data, path)
    if not arguments.json:
        _print_results(data.nbytes, speeds, decisions)
    framework = find_framework()
    feed_result = None if framework is None else _try_feed(framework)
    if not arguments.json:
        _print_feed_result(feed_result)
    report = "" if framework is None else run_doctor(framework)
    if arguments.json:
        document = {
            "rows_per_second": speeds,
            "choices": decisions,
            "feed": feed_result,
            "doctor_report": report or None,
        }
        print_json(document)
    else:
        _print_doctor(framework, report)
    return 0


def _measure(data: Array, path: Path) -> tuple[dict[str, float], list[dict[str, str]]]:
    """Return the rows per second of each loader, and the decisions of `memory_feed`.

    The loaders run in turn, so that other load on the machine affects all of them equally.
    """
    with (
        fb.from_arrays(data).shuffle(seed=0).batch(BATCH).shard(0, 1).feed("numpy") as memory_feed,
        fb.from_files(path).shuffle(seed=0).batch(BATCH).shard(0, 1).feed("numpy") as mapped_feed,
    ):
        loaders: dict[str, Callable[[], Iterable[Any]]] = {  # the names are also keys of the JSON output
            "a loop over rows, stacked": lambda: _stack_rows(data),
            "one NumPy index a batch": lambda: _index_batches(data),
            "forebay, from memory": lambda: memory_feed,
            "forebay, from a mapped .npy": lambda: mapped_feed,
        }
        samples: dict[str, list[float]] = {name: [] for name in loaders}
        for _ in range(REPEATS):
            for name, start_epoch in loaders.items():
                samples[name].append(_rows_per_second(start_epoch()))
        decisions = [
            {"name": decision.name, "choice": decision.choice, "why": decision.why}
            for decision in memory_feed.plan.decisions
        ]
    return {name: median(speeds) for name, speeds in samples.items()}, decisions


def _stack_rows(data: Array) -> Iterator[Any]:
    """Yield batches, each stacked from single rows, as loaders of `__getitem__` datasets make them."""
    order = np.random.default_rng(1).permutation(len(data))[:LOOP_ROWS]
    for start in range(0, len(order), BATCH):
        yield np.stack([data[row] for row in order[start : start + BATCH]])


def _index_batches(data: Array) -> Iterator[Any]:
    """Yield batches; one NumPy indexing operation makes each batch."""
    order = np.random.default_rng(1).permutation(len(data))
    for start in range(0, len(order), BATCH):
        yield data[order[start : start + BATCH]]


def _rows_per_second(batches: Iterable[Any]) -> float:
    start, rows = time.perf_counter(), 0
    for batch in batches:
        rows += len(batch)
    return rows / (time.perf_counter() - start)


def _try_feed(framework: str) -> dict[str, Any] | None:
    """Return the results of `feed_framework`.

    Return None if the framework cannot be imported or is too old.
    """
    try:
        return feed_framework(framework)
    except (ForebayError, ImportError) as error:
        error_console().print(f"forebay demo: {error}", markup=False)
        return None


def _print_results(nbytes: int, speeds: dict[str, float], decisions: list[dict[str, str]]) -> None:
    console = result_console()
    console.print(f"[bold]Shuffled batches of {BATCH} rows[/] from {format_nbytes(nbytes)} of data.")
    console.print("Rows per second, and how many times as fast as the slowest loader:\n")
    slowest = min(speeds.values())
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right")
    table.add_column(justify="right", style="bold")
    for name, speed in speeds.items():
        table.add_row(name, f"{speed:,.0f}", f"{speed / slowest:.1f} x")
    console.print(table)
    console.print(
        "\nThese batches stay on the CPU. For rows in memory, one NumPy index operation per batch can then be as fast "
        "as a feed."
    )
    console.print("A feed is faster with a GPU, with files that must be decoded, and with maps.")
    console.print("\n[bold]Why[/]: the decisions of the feed from memory, with their reasons\n")
    table = Table(box=None, pad_edge=False, show_header=False)
    for decision in decisions:
        table.add_row(decision["name"], decision["choice"], decision["why"])
    console.print(table)
    console.print("\nA feed delivers each row once per epoch. Only the seed and the epoch determine the order.")
    console.print("A feed reuses the memory of batches that you no longer use.")


def _print_feed_result(result: dict[str, Any] | None) -> None:
    console = result_console()
    if result is None:
        console.print(
            "\n[bold]No framework[/]: to feed one and to profile a script, the demo needs torch, jax or tensorflow, "
            "and can use none of them. Run [bold]pip install torch[/], then run [bold]forebay demo[/] again."
        )
        return
    console.print(
        f"\n[bold]A feed to {result['framework']}[/] on {result['device']}: every batch is a {result['batch_type']}."
    )
    console.print(f"It delivers {result['rows_per_second']:,.0f} rows per second in batches of {FRAMEWORK_BATCH} rows.")


def _print_doctor(framework: str | None, report: str) -> None:
    console = result_console()
    if report:
        console.print(f"\n[bold]The doctor[/] profiles any training script. Its report on a script of {framework}:")
        console.print(report.rstrip(), markup=False)
    elif framework is None:
        console.print("\nThe doctor profiles any training script and names the line that slows it down.")
    else:
        console.print("\nThe doctor could not profile the script of the demo. Run the doctor on your own script.")
    console.print("\nNext: [bold]forebay doctor YOUR_SCRIPT.py[/], [bold]forebay plan YOUR.npy --batch 256[/].")
