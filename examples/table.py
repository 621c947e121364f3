"""Write the measurements of the examples into docs/questions.md, between the markers of the table.

python examples/table.py            read every benchmarks/results/examples-MACHINE.json and write the table
python examples/table.py --check    only check that the page is up to date
"""

import argparse
import json
import re
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import record_file

__all__ = ["fill", "render"]

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "questions.md"
RESULTS = ROOT / "benchmarks" / "results"
# If a round of a variant (plain or Forebay) takes more than this many times the median round, a sentence below the
# table lists all its rounds.
UNEVEN = 2
MARKED_PART = re.compile(r"(<!-- examples -->\n).*?(<!-- /examples -->)", re.DOTALL)
NO_MEASUREMENTS = (
    "There are no measurements yet. Run `for script in examples/[0-9]*.py; do python $script --json "
    "benchmarks/results/examples-MACHINE.json; done`, then `python examples/table.py`.\n"
)
HEADER = (
    "| example | plain TensorFlow, ms per step | with Forebay, ms per step | times as fast | first round, s |\n"
    "|---|---|---|---|---|\n"
)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the measurements of the examples into docs/questions.md.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page is out of date")
    arguments = parser.parse_args()
    before = PAGE.read_text()
    after = fill(before, render(sorted(RESULTS.glob("examples-*.json"))))
    if arguments.check:
        sys.exit(None if after == before else f"{PAGE.name} is out of date. Run python examples/table.py.")
    PAGE.write_text(after)


def fill(page: str, table: str) -> str:
    """Return the page with the table between its markers."""
    if not MARKED_PART.search(page):
        sys.exit("the page has no <!-- examples --> and <!-- /examples --> markers. Add them where the table belongs.")
    return MARKED_PART.sub(lambda match: match[1] + table + match[2], page)


def render(paths: Sequence[Path]) -> str:
    """Return one table per file, with the latest record of each example."""
    return "\n".join(_machine_table(path) for path in paths) or NO_MEASUREMENTS


def _machine_table(path: Path) -> str:
    records = _latest_records(path)
    configurations = {json.dumps([record["device"], record["machine"], record["versions"]]) for record in records}
    if len(configurations) != 1:
        sys.exit(f"{path.name} has records of {len(configurations)} machines or versions. Use one file for each.")
    return f"{_heading(records)}\n\n{HEADER}{''.join(map(_row, records))}{''.join(map(_uneven_rounds, records))}"


def _latest_records(path: Path) -> list[dict[str, Any]]:
    latest = record_file.latest(path)
    if not latest:
        sys.exit(f"{path.name} has no record of a run without --quick. Run the examples without it.")
    return list(latest.values())


def _heading(records: list[dict[str, Any]]) -> str:
    machine, versions = records[0]["machine"], records[0]["versions"]
    version_list = ", ".join(f"{name} {version}" for name, version in versions.items())
    rounds = sorted({len(record[variant]["seconds"]) for record in records for variant in ("plain", "forebay")} - {0})
    return (
        f"**{records[0]['device']}** ({machine['cpu']}, {machine['cores']} cores; Python {machine['python']}, "
        f"{version_list}). "
        f"Medians of {' or '.join(map(str, rounds))} rounds (shortest to longest). "
        "The last column is the time of one earlier round, which includes the set-up: plain / with Forebay."
    )


def _row(record: dict[str, Any]) -> str:
    name, steps = record["example"], record["steps"]
    plain, forebay = record["plain"], record["forebay"]
    cells = [
        f"[{name}](../examples/{name}.py)",
        _step_time(plain, steps),
        _step_time(forebay, steps),
        _ratio(record),
    ]
    return f"| {' | '.join(cells)} | {_first_round(plain)} / {_first_round(forebay)} |\n"


def _step_time(timing: dict[str, Any], steps: int) -> str:
    if timing["error"] is not None:
        return f"fails: {record_file.failure(timing['error'])}"
    times = _step_times(timing, steps)
    return f"{statistics.median(times):.3g} ({min(times):.3g} to {max(times):.3g})"


def _step_times(timing: dict[str, Any], steps: int) -> list[float]:
    """Return the time per step of each round, in ms."""
    return [seconds / steps * 1e3 for seconds in timing["seconds"]]


def _uneven_rounds(record: dict[str, Any]) -> str:
    """Return a sentence for each variant whose longest round took more than UNEVEN times the median."""
    sentences = ""
    for variant, title in (("plain", "plain TensorFlow"), ("forebay", "Forebay")):
        times = _step_times(record[variant], record["steps"])
        if times and max(times) > UNEVEN * statistics.median(times):
            listed = ", ".join(f"{milliseconds:.3g}" for milliseconds in times)
            sentences += (
                f"\nThe rounds of {record['example']} with {title} differ: {listed} ms per step, in this order.\n"
            )
    return sentences


def _ratio(record: dict[str, Any]) -> str:
    ratio = record_file.times_as_fast(record)
    return "-" if ratio is None else f"{ratio:.3g}"


def _first_round(timing: dict[str, Any]) -> str:
    return "-" if timing["first_seconds"] is None else f"{timing['first_seconds']:.2g}"


if __name__ == "__main__":
    main()
