"""Writes what the examples measured into docs/questions.md, between its markers, so that no figure is typed by hand.

python examples/table.py            takes every benchmarks/results/examples-MACHINE.json
python examples/table.py --check    only says whether the page is up to date
"""

import argparse
import json
import re
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["fill", "render"]

SCHEMA_VERSION = 1
ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "questions.md"
RESULTS = ROOT / "benchmarks" / "results"
MARKED = re.compile(r"(<!-- examples -->\n).*?(<!-- /examples -->)", re.DOTALL)
NOTHING = (
    "No measurements are kept yet: run `for script in examples/[0-9]*.py; do python $script --json "
    "benchmarks/results/examples-MACHINE.json; done` and then `python examples/table.py`.\n"
)
HEADER = (
    "| example | plain TensorFlow, ms a step | with Forebay, ms a step | times as fast | first round, s |\n"
    "|---|---|---|---|---|\n"
)


def main() -> None:
    parser = argparse.ArgumentParser(description="Writes what the examples measured into docs/questions.md.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page is out of date")
    arguments = parser.parse_args()
    before = PAGE.read_text()
    after = fill(before, render(sorted(RESULTS.glob("examples-*.json"))))
    if arguments.check:
        sys.exit(None if after == before else f"{PAGE.name} is out of date: run python examples/table.py.")
    PAGE.write_text(after)


def fill(page: str, table: str) -> str:
    """The page with this between its markers."""
    if not MARKED.search(page):
        sys.exit("the page has no <!-- examples --> ... <!-- /examples --> to write between.")
    return MARKED.sub(lambda found: found[1] + table + found[2], page)


def render(paths: Sequence[Path]) -> str:
    """One table a file; of each example the record made last."""
    return "\n".join(_machine(path) for path in paths) or NOTHING


def _machine(path: Path) -> str:
    records = _latest(path)
    shared = {json.dumps([record["device"], record["machine"], record["versions"]]) for record in records}
    if len(shared) != 1:
        sys.exit(f"{path.name} holds records of {len(shared)} machines or versions: keep one file for each.")
    return f"{_heading(records)}\n\n{HEADER}{''.join(map(_row, records))}"


def _latest(path: Path) -> list[dict[str, Any]]:
    """Records made with --quick show that an example runs; they say nothing about speed."""
    kept = json.loads(path.read_text())
    if kept.get("schema_version") != SCHEMA_VERSION:
        sys.exit(f"{path.name} has schema_version {kept.get('schema_version')!r}, this script reads {SCHEMA_VERSION}.")
    latest = {record["example"]: record for record in kept["records"] if not record["quick"]}
    if not latest:
        sys.exit(f"{path.name} holds no record made without --quick.")
    return [latest[name] for name in sorted(latest)]


def _heading(records: list[dict[str, Any]]) -> str:
    machine, versions = records[0]["machine"], records[0]["versions"]
    told = ", ".join(f"{name} {version}" for name, version in versions.items())
    rounds = sorted({len(record[way]["seconds"]) for record in records for way in ("plain", "forebay")} - {0})
    return (
        f"**{records[0]['device']}** ({machine['cpu']}, {machine['cores']} cores; Python {machine['python']}, {told}). "
        f"Medians of {' or '.join(map(str, rounds))} rounds after one to warm up, with half their range; "
        "the first round, set-up included, stands apart."
    )


def _row(record: dict[str, Any]) -> str:
    name, steps = record["example"], record["steps"]
    plain, forebay = record["plain"], record["forebay"]
    cells = [f"[{name}](../examples/{name}.py)", _pace(plain, steps), _pace(forebay, steps), _ratio(plain, forebay)]
    return f"| {' | '.join(cells)} | {_first(plain)} / {_first(forebay)} |\n"


def _pace(timing: dict[str, Any], steps: int) -> str:
    if timing["error"] is not None:
        return f"fails: {_reason(timing['error'])}"
    seconds = timing["seconds"]
    spread = (max(seconds) - min(seconds)) / 2 / statistics.median(seconds)
    return f"{statistics.median(seconds) / steps * 1e3:.3g} (± {spread:.0%})"


def _reason(error: str) -> str:
    """The end of what TensorFlow says, without the paths before it and the operation after it."""
    return error.partition(" [Op:")[0].rpartition(": ")[2].strip().rstrip(".").replace("|", "/")


def _ratio(plain: dict[str, Any], forebay: dict[str, Any]) -> str:
    if plain["error"] is not None or forebay["error"] is not None:
        return "-"
    return f"{statistics.median(plain['seconds']) / statistics.median(forebay['seconds']):.3g}"


def _first(timing: dict[str, Any]) -> str:
    return "-" if timing["first_seconds"] is None else f"{timing['first_seconds']:.2g}"


if __name__ == "__main__":
    main()
