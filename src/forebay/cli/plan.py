"""`forebay plan DATA --batch N`: how a feed of this data would run here, and how fast."""

import argparse
import time
from typing import Any

from rich.table import Table

import forebay as fb
from forebay.cli.console import print_json, result_console
from forebay.core.spec import ArraySpec, format_nbytes
from forebay.feed.feed import Feed
from forebay.pipeline.options import FeedOptions

__all__ = ["HELP", "NAME", "add_arguments", "run"]

NAME = "plan"
HELP = "how a feed of this data would run here, and how fast"

TRIAL_SECONDS = 1.0
WARM_UP_SECONDS = 0.2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", nargs="+", help="a file, a glob or several of them, as from_files() takes them")
    parser.add_argument("--batch", type=int, required=True, metavar="N", help="rows of a batch")
    parser.add_argument("--to", default="numpy", help="the framework to feed (default: numpy)")
    parser.add_argument("--block", type=int, metavar="ROWS", help="shuffle in blocks, for data beyond RAM")
    parser.add_argument("--no-shuffle", action="store_true", help="rows in the order they lie in")
    parser.add_argument("--shape", type=int, nargs="*", default=[], help="shape of a row, for .bin files")
    parser.add_argument("--dtype", help="dtype of a row, for .bin files")
    parser.add_argument("--device", default=FeedOptions.device, help="cpu, cuda or cuda:1 (default: a GPU where there is one)")
    parser.add_argument("--resident", default=FeedOptions.resident, help="keep data on the device: auto, always or never")
    parser.add_argument("--host-bytes", default=FeedOptions.host_bytes, help="memory the feed may take (default: 256MiB)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(arguments: argparse.Namespace) -> int:
    options = {"device": arguments.device, "resident": arguments.resident, "host_bytes": arguments.host_bytes}
    with _pipeline(arguments).feed(arguments.to, **options) as feed:
        rows_per_second = _try_out(feed)
        if arguments.json:
            print_json(_document(feed, rows_per_second))
        else:
            _show(feed, rows_per_second)
    return 0


def _pipeline(arguments: argparse.Namespace) -> fb.Pipeline:
    spec = ArraySpec(arguments.shape, arguments.dtype) if arguments.dtype else None
    files = arguments.data if len(arguments.data) > 1 else arguments.data[0]
    pipeline = fb.from_files(files, spec=spec)
    if not arguments.no_shuffle:
        pipeline = pipeline.shuffle(seed=0, block=arguments.block)
    return pipeline.batch(arguments.batch)


def _try_out(feed: Feed) -> float:
    """Rows a second over epochs of a second in all, after one to warm up; a long one is cut short."""
    _run_for(feed, WARM_UP_SECONDS)
    rows, seconds = 0, 0.0
    while seconds < TRIAL_SECONDS:
        more, took = _run_for(feed, TRIAL_SECONDS - seconds)
        rows, seconds = rows + more, seconds + took
    return rows / seconds


def _run_for(feed: Feed, seconds: float) -> tuple[int, float]:
    """Rows of an epoch, and how long they took; it is left when the time is up."""
    rows, began = 0, time.perf_counter()
    for batch in feed:
        rows += len(feed.structure.flatten_like(batch)[0])
        if time.perf_counter() - began > seconds:
            break
    return rows, time.perf_counter() - began


def _document(feed: Feed, rows_per_second: float) -> dict[str, Any]:
    plan, row_nbytes = feed.plan, sum(spec.nbytes for spec in feed.specs)
    return {
        "rows_per_second": rows_per_second,
        "bytes_per_second": rows_per_second * row_nbytes,
        "batches": feed.batches,
        "fields": {name: str(spec) for name, spec in zip(feed.structure.paths, feed.specs, strict=True)},
        "planned_nbytes": plan.nbytes,
        "choices": [{"name": made.name, "choice": made.choice, "why": made.why} for made in plan.decisions],
    }


def _show(feed: Feed, rows_per_second: float) -> None:
    out, document = result_console(), _document(feed, rows_per_second)
    fields = ", ".join(f"{name} {spec}" for name, spec in document["fields"].items())
    length = "an unknown number of" if feed.batches is None else f"{feed.batches:,}"
    batches = "batch" if feed.batches == 1 else "batches"
    out.print(f"{length} {batches} of {feed.plan.input.batch_rows} rows: {fields}", markup=False)
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("what", "choice", "why"):
        table.add_column(column)
    for made in feed.plan.decisions:
        table.add_row(made.name, made.choice, made.why)
    out.print(table)
    speed = f"{rows_per_second:,.0f} rows/s, {format_nbytes(document['bytes_per_second'])}/s"
    out.print(f"measured here for {TRIAL_SECONDS:.0f} s with an idle consumer: [bold]{speed}[/]")
