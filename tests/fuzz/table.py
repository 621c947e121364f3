"""The table of a run, and its failures in groups."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.fuzz.driver import FuzzedCase
from tests.fuzz.verdict import Kind

__all__ = ["FuzzResult"]

_COLUMNS = ("same rows", "other rows", "refused")


@dataclass(frozen=True, slots=True)
class FuzzResult:
    """Counts by format and class, and all failures."""

    counts: Mapping[str, Counter[str]]
    failures: Sequence[FuzzedCase]

    def describe(self, seed: int) -> list[str]:
        """Return the lines of a Markdown table, and one line for each group of failures."""
        lines = ["| format | tried | same rows | other rows | refused | failed |", "|---|---|---|---|---|---|"]
        total: Counter[str] = Counter()
        for name, counts in self.counts.items():
            lines.append(_row(name, counts))
            total += counts
        failed = len(self.failures)
        summary = f"{total.total() - failed:,} cases passed, {failed:,} failed"
        return [*lines, _row("all", total), *self._describe_failures(seed), "", summary]

    def _describe_failures(self, seed: int) -> list[str]:
        groups: dict[tuple[str, str, str], list[FuzzedCase]] = {}
        for case in self.failures:
            # Numbers and quoted texts differ from case to case.
            cause = re.sub(r"'[^']*'|\"[^\"]*\"|(?<![\w:.])\d+", "#", case.verdict.detail)[:100]
            groups.setdefault((case.format, case.verdict.kind, cause), []).append(case)
        lines = []
        for (name, kind, _), cases in sorted(groups.items(), key=lambda item: -len(item[1])):
            again = f"python -m tests.fuzz --format {name} --seed {seed} --only {cases[0].index}"
            lines += ["", f"{len(cases)} x {name}, {kind}: {cases[0].verdict.detail}", f"    {again}"]
        return lines


def _row(name: str, counts: Counter[str]) -> str:
    failed = sum(count for kind, count in counts.items() if Kind(kind).is_failure)
    cells = [name, counts.total(), *(counts[column] for column in _COLUMNS), failed]
    return f"| {' | '.join(f'{cell:,}' if isinstance(cell, int) else cell for cell in cells)} |"
