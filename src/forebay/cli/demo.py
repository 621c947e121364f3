"""`forebay demo`: the whole story in a few seconds: data made here, fed three ways, what was won and why."""

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
from forebay.cli.console import error_console, print_json, result_console
from forebay.core.spec import Array, format_nbytes

__all__ = ["HELP", "NAME", "add_arguments", "run"]

NAME = "demo"
HELP = "the whole story in a few seconds: makes data, feeds it three ways, says what was won"

ROWS, WIDTH, BATCH = 200_000, 100, 32
LOOP_ROWS = 20_000  # a loop over rows is too slow to wait for all of them
REPEATS = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(arguments: argparse.Namespace) -> int:
    error_console().print(f"making {ROWS:,} rows of {WIDTH} float32 ...")
    data = np.random.default_rng(0).random((ROWS, WIDTH), dtype=np.float32)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.npy"
        np.save(path, data)
        speeds, decisions = _measure(data, path)
    if arguments.json:
        print_json({"rows_per_second": speeds, "choices": reasons})
    else:
        _show(data.nbytes, speeds, reasons)
    return 0


def _measure(data: Array, path: Path) -> tuple[dict[str, float], list[dict[str, str]]]:
    """Rows a second, the ways taken in turn so that a busy machine hurts all alike."""
    with (
        fb.from_arrays(data).shuffle(seed=0).batch(BATCH).feed("numpy") as memory,
        fb.from_files(path).shuffle(seed=0).batch(BATCH).feed("numpy") as mapped,
    ):
        ways: dict[str, Callable[[], Iterable[Any]]] = {
            "a loop over rows, stacked": lambda: _row_by_row(data),
            "one NumPy index a batch": lambda: _batch_by_batch(data),
            "forebay, from memory": lambda: memory,
            "forebay, from a mapped .npy": lambda: mapped,
        }
        runs: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(REPEATS):
            for name, way in ways.items():
                runs[name].append(_rows_per_second(way()))
        decisions = [{"name": made.name, "choice": made.choice, "why": made.why} for made in memory.plan.decisions]
    return {name: median(found) for name, found in runs.items()}, reasons


def _row_by_row(data: Array) -> Iterator[Any]:
    """What a dataset with `__getitem__` and a loader that stacks comes to."""
    order = np.random.default_rng(1).permutation(len(data))[:LOOP_ROWS]
    for start in range(0, len(order), BATCH):
        yield np.stack([data[row] for row in order[start : start + BATCH]])


def _batch_by_batch(data: Array) -> Iterator[Any]:
    order = np.random.default_rng(1).permutation(len(data))
    for start in range(0, len(order), BATCH):
        yield data[order[start : start + BATCH]]


def _rows_per_second(batches: Iterable[Any]) -> float:
    began, rows = time.perf_counter(), 0
    for batch in batches:
        rows += len(batch)
    return rows / (time.perf_counter() - began)


def _show(nbytes: int, speeds: dict[str, float], decisions: list[dict[str, str]]) -> None:
    out = result_console()
    out.print(f"[bold]Shuffled batches of {BATCH} rows[/] out of {format_nbytes(nbytes)}, rows handed over a second:\n")
    slowest = min(speeds.values())
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right")
    table.add_column(justify="right", style="bold")
    for name, speed in speeds.items():
        table.add_row(name, f"{speed:,.0f}", f"{speed / slowest:.1f} x")
    out.print(table)
    out.print("\n[bold]Why[/]: how the feed from memory ran\n")
    table = Table(box=None, pad_edge=False, show_header=False)
    for made in decisions:
        table.add_row(made["name"], made["choice"], made["why"])
    out.print(table)
    out.print("\nEvery row once an epoch, in an order that the seed alone decides; memory reused.")
    out.print("Next: [bold]forebay plan YOUR.npy --batch 256[/], [bold]forebay bench[/].")
