"""The results file of the numbered examples: append a record, read the latest records, and format one as a report."""

import json
import statistics
import sys
import textwrap
from pathlib import Path
from typing import Any

from forebay.core.spec import format_nbytes

__all__ = ["SCHEMA_VERSION", "read", "latest", "append", "report", "times_as_fast", "failure"]

SCHEMA_VERSION = 1
_NO_GPU = "TensorFlow found no GPU. Nothing is copied to a GPU or back, so these times say little about a GPU."


def read(path: Path) -> list[dict[str, Any]]:
    """Return all records of a results file."""
    try:
        document = json.loads(path.read_text())
    except ValueError as error:
        sys.exit(f"{path.name} is no results file: {error}. Name another file.")
    version = document.get("schema_version") if isinstance(document, dict) else None
    if version != SCHEMA_VERSION:
        sys.exit(
            f"{path.name} has schema_version {version!r}, but this script reads only {SCHEMA_VERSION}. "
            "Measure again with the current examples."
        )
    return list(document["records"])


def latest(path: Path) -> dict[str, dict[str, Any]]:
    """Return the latest record of each example, in the order of their names.

    Records of --quick runs do not count, because their speed means nothing.
    """
    found = {record["example"]: record for record in read(path) if not record["quick"]}
    return {name: found[name] for name in sorted(found)}


def append(path: Path, record: dict[str, Any]) -> None:
    """Append a record to a results file, or start the file."""
    records = read(path) if path.exists() else []
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"schema_version": SCHEMA_VERSION, "records": [*records, record]}, indent=1) + "\n")


def report(record: dict[str, Any], look_at: str, gpu_record: dict[str, Any] | None) -> str:
    """Return the times of a record and what to look at.

    The times of a CPU say little, so the report of a CPU also has the times of the GPU record.
    """
    lines, advice = _describe(record), f"Look at {look_at}"
    if record["device"] != "CPU":
        lines += ["Small sizes: run without --quick to compare times."] if record["quick"] else _ratio(record)
    elif gpu_record is None:
        lines += [f"{_NO_GPU} The repository of Forebay has times of a GPU: see docs/questions.md."]
    else:
        lines += [f"{_NO_GPU} For comparison:", *_describe(gpu_record), *_ratio(gpu_record)]
        advice = f"On the {gpu_record['device']}, look at {look_at}"
    return "\n".join([*lines, *textwrap.wrap(advice, width=100)])


def _describe(record: dict[str, Any]) -> list[str]:
    size, version = format_nbytes(record["step_nbytes"]), record["versions"]["forebay"]
    title = f"{record['example']} on {record['device']}: {record['steps']} steps of {size}, forebay {version}"
    return [title, *(_describe_variant(name, record[name], record["steps"]) for name in ("plain", "forebay"))]


def _describe_variant(name: str, timing: dict[str, Any], steps: int) -> str:
    if timing["error"] is not None:
        return f"  {name:<8} failed: {failure(timing['error'])}"
    times = sorted(seconds / steps * 1e3 for seconds in timing["seconds"])
    return (
        f"  {name:<8} {statistics.median(times):.3f} ms per step (median of {len(times)} rounds, {times[0]:.3f} to "
        f"{times[-1]:.3f}), first round with set-up {timing['first_seconds']:.3f} s"
    )


def _ratio(record: dict[str, Any]) -> list[str]:
    ratio = times_as_fast(record)
    return [] if ratio is None else [f"  ratio    {ratio:.3g} x as fast with Forebay"]


def times_as_fast(record: dict[str, Any]) -> float | None:
    """Return the time of plain TensorFlow, divided by that of Forebay; None if one of them failed."""
    plain, forebay = record["plain"], record["forebay"]
    if plain["error"] is not None or forebay["error"] is not None:
        return None
    return statistics.median(plain["seconds"]) / statistics.median(forebay["seconds"])


def failure(error: str) -> str:
    """Return the last part of a TensorFlow message: the text after its last colon, without the operation.

    The text fits into a cell of a Markdown table, so it has no "|".
    """
    return error.partition(" [Op:")[0].rpartition(": ")[2].strip().rstrip(".").replace("|", "/")
