"""`forebay plan DATA --batch N`: show the plan of a feed and measure its speed."""

import argparse
import time
from typing import Any

from rich.table import Table

import forebay as fb
from forebay.cli.console import print_json, result_console
from forebay.core.spec import ArraySpec, format_nbytes
from forebay.feed.feed import Feed
from forebay.pipeline.options import FeedOptions

__all__ = ["add_arguments", "run"]


TRIAL_SECONDS = 1.0  # duration of the measurement
WARM_UP_SECONDS = 0.2  # duration of the warm-up before the measurement


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", nargs="+", help="files or glob patterns, as for from_files()")
    parser.add_argument("--batch", type=int, required=True, metavar="N", help="rows per batch")
    parser.add_argument("--to", default="numpy", help="framework that receives the batches (default: numpy)")
    parser.add_argument("--block", type=int, metavar="ROWS", help="shuffle in blocks of ROWS, for data larger than RAM")
    parser.add_argument("--no-shuffle", action="store_true", help="keep the rows in their stored order")
    parser.add_argument("--shape", type=int, nargs="*", default=[], help="shape of a row, for .bin files")
    parser.add_argument("--dtype", help="dtype of a row, for .bin files")
    parser.add_argument(
        "--device", default=FeedOptions.device, help="cpu, cuda or cuda:1 (default: a GPU if there is one)"
    )
    parser.add_argument(
        "--resident",
        default=FeedOptions.resident,
        help="keep all rows on the device: auto, always or never (default: auto)",
    )
    parser.add_argument(
        "--host-bytes", default=FeedOptions.host_bytes, help="host memory budget of the feed (default: 256MiB)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(arguments: argparse.Namespace) -> int:
    options = {"device": arguments.device, "resident": arguments.resident, "host_bytes": arguments.host_bytes}
    with _make_pipeline(arguments).shard(0, 1).feed(arguments.to, **options) as feed:
        rows_per_second = _measure(feed)
        if arguments.json:
            print_json(_to_document(feed, rows_per_second))
        else:
            _print_plan(feed, rows_per_second)
    return 0


def _make_pipeline(arguments: argparse.Namespace) -> fb.Pipeline:
    spec = ArraySpec(arguments.shape, arguments.dtype) if arguments.dtype else None
    files = arguments.data if len(arguments.data) > 1 else arguments.data[0]
    pipeline = fb.from_files(files, spec=spec)
    if not arguments.no_shuffle:
        pipeline = pipeline.shuffle(seed=0, block=arguments.block)
    return pipeline.batch(arguments.batch)


def _measure(feed: Feed) -> float:
    """Return the rows per second of the feed, measured for TRIAL_SECONDS after a warm-up."""
    _run_for(feed, WARM_UP_SECONDS)
    rows, seconds = 0, 0.0
    while seconds < TRIAL_SECONDS:
        more_rows, more_seconds = _run_for(feed, TRIAL_SECONDS - seconds)
        rows, seconds = rows + more_rows, seconds + more_seconds
    return rows / seconds


def _run_for(feed: Feed, seconds: float) -> tuple[int, float]:
    """Take batches until the epoch ends or `seconds` have passed.

    Return the number of rows and the elapsed seconds.
    """
    rows, start = 0, time.perf_counter()
    for batch in feed:
        rows += len(feed.structure.flatten_like(batch)[0])
        if time.perf_counter() - start > seconds:
            break
    return rows, time.perf_counter() - start


def _to_document(feed: Feed, rows_per_second: float) -> dict[str, Any]:
    plan, row_nbytes = feed.plan, sum(spec.nbytes for spec in feed.specs)
    return {
        "rows_per_second": rows_per_second,
        "bytes_per_second": rows_per_second * row_nbytes,
        "batches": feed.batches,
        "fields": {name: str(spec) for name, spec in zip(feed.structure.paths, feed.specs, strict=True)},
        "planned_nbytes": plan.nbytes,
        "choices": [
            {"name": decision.name, "choice": decision.choice, "why": decision.why} for decision in plan.decisions
        ],
    }


def _print_plan(feed: Feed, rows_per_second: float) -> None:
    console, document = result_console(), _to_document(feed, rows_per_second)
    fields = ", ".join(f"{name} {spec}" for name, spec in document["fields"].items())
    length = "an unknown number of" if feed.batches is None else f"{feed.batches:,}"
    batches = "batch" if feed.batches == 1 else "batches"
    console.print(f"{length} {batches} of {feed.plan.input.batch_size}: {fields}", markup=False)
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("decision", "choice", "why"):
        table.add_column(column)
    for decision in feed.plan.decisions:
        table.add_row(decision.name, decision.choice, decision.why)
    console.print(table)
    speed = f"{rows_per_second:,.0f} rows/s, {format_nbytes(document['bytes_per_second'])}/s"
    console.print(f"Measured for {TRIAL_SECONDS:.0f} s with a consumer that only takes batches: [bold]{speed}[/]")
