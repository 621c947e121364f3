"""When to stop watching: after enough steady steps, found without being told where a step ends. Pure.

A step ends where a framework says so (an optimizer's step, a batch of `fit`). Where none does, it is a line of the
loop that comes again and again. Once there are enough of them, some more are recorded on the device too, where there
is one; then everything is switched off but what marks a step, for some steps more: those are timed untraced, and what
watching cost is the difference.

    watching -> tracing -> timing -> over

A line that nobody calls a step has to come for some seconds, for it may be of another loop before the one that counts.
Nobody needs to watch all that time: it is watched for a moment, left alone until it has come for long enough, and
watched again.
"""

from dataclasses import dataclass, field
from typing import Literal

from forebay.doctor.capture.ledger import AT_ONCE, NEVER, Again, Site
from forebay.doctor.model.events import LOOP_MARKS, Kind

__all__ = ["Phase", "Site", "Stepping"]

Phase = Literal["watching", "tracing", "timing", "over"]

_RANKS: dict[str, int] = {kind: rank for rank, kinds in enumerate(LOOP_MARKS) for kind in kinds}
_RANKS[Kind.OPS] = len(LOOP_MARKS)  # some milliseconds of operations, where nothing else comes again
_ALIVE = 3  # times something must have come to be waited for
_GONE_NS = 2_000_000_000  # without it, and some of its turns more: what is surer belonged to another loop
_GONE_TURNS = 5
_TIMED_NS = 50_000_000  # for so long short steps are timed,
_BLOCK = 16  # so many at a time
_NEWS_NS = 100_000_000  # how old may be what is known of a line


@dataclass(slots=True)
class _Line:
    """What comes again and again, perhaps. Times are whole nanoseconds: it is asked often."""

    rank: int
    patient_until: int
    first: int  # when it came first
    last: int = 0
    count: int = 0  # how often it has come
    begun: int = 0  # how often it had come when it began to be counted
    warm: int = 0  # when the warm-up was over; none before it has begun
    watched_until: int = 0

    def is_alive(self, now: int, times: int = _ALIVE) -> bool:
        """Whether it has come so often and still does."""
        if self.count < times:
            return False
        turn = (self.last - self.first) // max(1, self.count - 1)
        return now - self.last <= _GONE_NS + _GONE_TURNS * turn


@dataclass(slots=True)
class Stepping:
    """Told of events; says when the phase changes."""

    warm_up: int = 10
    steps: int = 50
    traced_steps: int = 10  # on the device: recording each of its operations costs a launch-bound step a quarter
    untraced_steps: int = 60  # they cost nothing, and twenty on a busy machine differ by a fifth from the next twenty
    seconds: float = 10.0  # of watching after the warm-up, at most
    patience_seconds: float = 3.0  # a line that nobody calls a step must come again for so long
    glance_seconds: float = 0.25  # and is watched for so long at a time, at least
    short_seconds: float = 200e-6  # a step that is shorter is not timed by itself
    phase: Phase = "watching"
    anchor: Site | None = None
    start: int = 0
    end: int = 0
    block: int = 1  # how many steps there are to the next that is heard of, while they are timed
    rest_until: int = 0  # nothing needs to be watched before
    traced: list[int] = field(default_factory=list)  # when steps ended that were recorded on the device
    marks: list[int] = field(default_factory=list)  # when steps ended that nobody watched
    _lines: dict[Site, _Line] = field(default_factory=dict)
    _in_blocks: bool = False  # whether short steps are timed
    _glanced: Site | None = None  # what was watched from `start` to `end`, and is waited for

    def note(self, site: Site, count: int, now: int) -> bool:
        """Whether the phase has just changed."""
        if self.phase == "watching":
            return self._watch(site, count, now)
        if site != self.anchor or self.phase == "over":
            return False
        if self.phase == "tracing":
            self.traced.append(now)
            enough = self._are_enough(self.traced, self.traced_steps)
        else:
            self._mark(now)
            enough = self._are_enough(self.marks, self.untraced_steps) and not self._are_short()
        if enough:
            self.phase = "timing" if self.phase == "tracing" else "over"
        return enough

    def again(self, site: Site, now: int) -> Again:
        """When this is to be told of the site again: seldom, where nothing comes of it."""
        if self.phase != "watching":
            return AT_ONCE if site == self.anchor else NEVER
        line = self._lines.get(site)
        if line is None:
            return NEVER
        enough = line.begun + self.warm_up + self.steps
        if line.count <= line.begun + self.warm_up:
            return AT_ONCE
        if line.count < enough:
            return enough, min(line.watched_until, now + _NEWS_NS)
        glanced = line.warm + int(self.glance_seconds * 1e9)
        return NEVER[0], min(glanced, now + _NEWS_NS) if glanced > now else now + _NEWS_NS

    def skip_tracing(self) -> None:
        """There is no device, or it cannot be recorded."""
        self.phase = "timing"

    def finish(self, now: int) -> None:
        """The script has ended; whatever was seen has to do."""
        if self.phase == "watching":
            if self._glanced is not None and _RANKS[self._glanced[0]] <= self._surest(now):
                self.anchor = self._glanced
            else:
                self.start, self.end = 0, now
        self.phase = "over"

    def _are_enough(self, marks: list[int], steps: int) -> bool:
        return len(marks) > steps or marks[-1] - marks[0] > self.seconds * 1e9

    def _mark(self, now: int) -> None:
        """So many steps have ended since the last mark, by as much each."""
        before, block = self.marks[-1] if self.marks else now, self.block
        self.marks += [before + (now - before) * number // block for number in range(1, block + 1)]

    def _are_short(self) -> bool:
        """Whether steps are over so soon that to hear of each makes them longer: then only some are heard of."""
        lasted = self.marks[-1] - self.marks[0]
        if not self.short_seconds or lasted >= min(_TIMED_NS, len(self.marks) * self.short_seconds * 1e9):
            return False
        if not self._in_blocks:
            self.marks, self.block, self._in_blocks = self.marks[-1:], _BLOCK, True
        return True

    def _watch(self, site: Site, count: int, now: int) -> bool:
        line = self._lines.get(site) or self._meet(site, now)
        if line is None:
            return False
        line.count, line.last = count, now
        if not line.warm:
            line.begun = count - 1
        if now < self.rest_until:
            self._wake_for(line, now)
            return False
        passed = count - line.begun
        if passed <= max(1, self.warm_up):
            line.warm, line.watched_until = now, now + int(self.seconds * 1e9)
            return False
        if passed < self.warm_up + self.steps and now <= line.watched_until:
            return False
        if line.rank > self._surest(now, 1 if line.rank == _RANKS[Kind.OPS] else _ALIVE):
            return False  # something surer comes again too: what happens inside a step is no step
        if line.rank and now - line.warm < self.glance_seconds * 1e9:
            return False  # many short steps say more than a few
        if line.rank and now < line.patient_until:
            self._rest(site, line, now)
            return False
        self.phase, self.anchor, self.start, self.end = "tracing", site, line.warm, now
        return True

    def _meet(self, site: Site, now: int) -> _Line | None:
        """A line that was not heard of before; None where its kind marks no loop."""
        rank = _RANKS.get(site[0])
        if rank is None:
            return None
        line = self._lines[site] = _Line(rank, now + int(self.patience_seconds * 1e9), now)
        return line

    def _surest(self, now: int, times: int = _ALIVE) -> int:
        """The rank of the surest line that comes again, or has come so often."""
        return min((line.rank for line in self._lines.values() if line.is_alive(now, times)), default=len(_RANKS))

    def _rest(self, site: Site, line: _Line, now: int) -> None:
        """Leave everything alone until this line has come for long enough."""
        self._glanced, self.start, self.end = site, line.warm, now
        self.rest_until = line.patient_until
        self._begin_anew()

    def _wake_for(self, line: _Line, now: int) -> None:
        """What is surer than the line that is waited for has come up."""
        if self._glanced is not None and line.rank < _RANKS[self._glanced[0]] and line.is_alive(now):
            self.rest_until = 0
            self._begin_anew()

    def _begin_anew(self) -> None:
        for line in self._lines.values():
            line.warm = 0
