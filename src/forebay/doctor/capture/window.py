"""When to stop watching: after enough steady steps, found without being told where a step ends. Pure.

A step ends where a framework says so (an optimizer's step, a batch of `fit`). Where none does, it is a line of the
loop that comes again and again. Once there are enough of them, some more are recorded on the device too, where there
is one; then everything is switched off but what marks a step, for some steps more: those are timed untraced, and what
watching cost is the difference.

    watching -> tracing -> timing -> over
"""

from dataclasses import dataclass, field
from typing import Literal

from forebay.doctor.events import LOOP_MARKS

__all__ = ["Phase", "Stepping"]

Phase = Literal["watching", "tracing", "timing", "over"]
Site = tuple[str, str, int]

_RANKS: dict[str, int] = {kind: rank for rank, kinds in enumerate(LOOP_MARKS) for kind in kinds}
_ALIVE = 3  # times something must have come to be waited for


@dataclass(slots=True)
class _Line:
    """What comes again and again, perhaps. Times are whole nanoseconds: it is asked at every event."""

    rank: int
    patient_until: int
    warm: int = 0  # when the warm-up was over
    watched_until: int = 0


@dataclass(slots=True)
class Stepping:
    """Told of every event; says when the phase changes."""

    warm_up: int = 10
    steps: int = 50
    traced_steps: int = 10  # on the device: recording each of its operations costs a launch-bound step a quarter
    untraced_steps: int = 20
    seconds: float = 10.0  # of watching after the warm-up, at most
    patience_seconds: float = 3.0  # a line that nobody calls a step must come again for so long
    phase: Phase = "watching"
    anchor: Site | None = None
    start: int = 0
    end: int = 0
    traced: list[int] = field(default_factory=list)  # when steps ended that were recorded on the device
    marks: list[int] = field(default_factory=list)  # when steps ended that nobody watched
    _lines: dict[Site, _Line] = field(default_factory=dict)
    _best: int = len(LOOP_MARKS)  # the surest kind that has come again so far

    def note(self, site: Site, count: int, now: int) -> bool:
        """Whether the phase has just changed."""
        if self.phase == "watching":
            return self._watch(site, count, now)
        if site != self.anchor or self.phase == "over":
            return False
        marks, enough = (
            (self.traced, self.traced_steps) if self.phase == "tracing" else (self.marks, self.untraced_steps)
        )
        marks.append(now)
        if len(marks) <= enough and now - marks[0] <= self.seconds * 1e9:
            return False
        self.phase = "timing" if self.phase == "tracing" else "over"
        return True

    def skip_tracing(self) -> None:
        """There is no device, or it cannot be recorded."""
        self.phase = "timing"

    def _watch(self, site: Site, count: int, now: int) -> bool:
        line = self._lines.get(site) or self._meet(site, now)
        if line is None:
            return False
        if count == _ALIVE:
            self._best = min(self._best, line.rank)
        if count <= max(1, self.warm_up):
            line.warm, line.watched_until = now, now + int(self.seconds * 1e9)
            return False
        if count < self.warm_up + self.steps and now <= line.watched_until:
            return False
        if line.rank > self._best:
            return False  # something surer comes again too: what happens inside a step is no step
        if line.rank and now < line.patient_until:
            return False
        self.phase, self.anchor, self.start, self.end = "tracing", site, line.warm, now
        return True

    def _meet(self, site: Site, now: int) -> _Line | None:
        """A line that was not heard of before; None where its kind marks no loop."""
        rank = _RANKS.get(site[0])
        if rank is None:
            return None
        line = self._lines[site] = _Line(rank, now + int(self.patience_seconds * 1e9))
        return line

    def finish(self, now: int) -> None:
        """The script has ended; whatever was seen has to do."""
        if self.phase == "watching":
            self.end = now
        self.phase = "over"
