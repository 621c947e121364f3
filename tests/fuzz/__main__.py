"""`python -m tests.fuzz`: read damaged files, print a table, and keep failing inputs.

    python -m tests.fuzz --files 100000 --seed 0 --jobs 2     all formats, then faults of a store
    python -m tests.fuzz --files 5000 --format zarr           one format
    python -m tests.fuzz --format zarr --seed 0 --only 1234   one case again

The exit status is 1 if a case failed.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path

from tests.fuzz import remote
from tests.fuzz.corpus import FORMATS
from tests.fuzz.driver import FuzzedCase, FuzzPlan, run_cases
from tests.fuzz.table import FuzzResult

__all__ = ["main", "share_files"]

SLOW_FORMATS = {"capture": 0.25, "attacks": 0.1}  # share of cases, relative to other formats
REMOTE_SHARE = 0.01  # requests wait and are repeated, so a remote case takes as long as a hundred files


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.partition("\n")[0])
    names = [*FORMATS, remote.FORMAT]
    parser.add_argument("--files", type=int, default=2000, help="damaged files, over all formats (default: 2000)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--format", choices=names, action="append", help="only this format; may be repeated")
    parser.add_argument("--jobs", type=int, default=2, help="worker processes (default: 2)")
    parser.add_argument("--only", type=int, metavar="NUMBER", help="run one case of one format again")
    parser.add_argument("--guided", action="store_true", help="prefer inputs that reach new lines of Forebay")
    parser.add_argument("--save", type=Path, help="folder for the inputs of failures (default: a temporary folder)")
    arguments = parser.parse_args()
    folder = (arguments.save or Path(tempfile.mkdtemp(prefix="forebay-fuzz-"))).absolute()
    counts = share_files(arguments.files, arguments.format or names)
    if arguments.only is not None:
        counts = dict.fromkeys(arguments.format or names, 1)
    plan = FuzzPlan(counts, arguments.seed, arguments.jobs, folder, arguments.guided, arguments.only or 0)
    result = _run(plan)
    print("\n".join(result.describe(plan.seed)))  # noqa: T201
    if result.failures:
        print(f"\nThe inputs of failures are in {folder / 'failures'}")  # noqa: T201
    return 1 if result.failures else 0


def share_files(files: int, names: list[str]) -> Mapping[str, int]:
    """Return the number of cases of each format."""
    weights = {name: SLOW_FORMATS.get(name, 1.0) for name in names if name != remote.FORMAT}
    counts = {name: max(1, round(files * weight / sum(weights.values()))) for name, weight in weights.items()}
    if remote.FORMAT in names:
        counts[remote.FORMAT] = max(10, round(files * REMOTE_SHARE)) if weights else files
    return counts


def _run(plan: FuzzPlan) -> FuzzResult:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    failures: list[FuzzedCase] = []
    started, total = time.monotonic(), sum(plan.counts.values())

    def report(case: FuzzedCase) -> None:
        counts[case.format][case.verdict.kind] += 1
        if case.verdict.kind.is_failure:
            failures.append(case)
        done = sum(counter.total() for counter in counts.values())
        if done % 1000 == 0:
            seconds = time.monotonic() - started
            print(f"{done} of {total} in {seconds:.0f} s, {len(failures)} failed", file=sys.stderr, flush=True)  # noqa: T201

    run_cases(plan, report)
    return FuzzResult({name: counts[name] for name in plan.counts}, failures)


if __name__ == "__main__":
    sys.exit(main())
