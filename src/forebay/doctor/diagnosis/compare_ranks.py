"""Several ranks of one run side by side: who is slow, and who does otherwise than its peers. Pure."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from forebay.doctor.analyse.case import Case, Site
from forebay.doctor.analyse.device_time import COLLECTIVE, named, seconds_of, when
from forebay.doctor.analyse.framework import is_device
from forebay.doctor.diagnosis.diagnose import Verdict
from forebay.doctor.model.events import Kind
from forebay.doctor.model.formatting import percent, seconds

__all__ = ["Rank", "Ranks", "compare_ranks"]

STRAGGLES, LAGS = 0.1, 0.2  # of its peers' step: TraceML's limits for a warning and for worse
FEWER_KERNELS = 0.2  # than its peers': some of its operations run elsewhere


@dataclass(frozen=True, slots=True)
class Rank:
    """One process."""

    number: int
    verdict: Verdict
    step_seconds: float
    input_seconds: float  # of a step
    collective_seconds: float | None  # of a step: work together, and waiting for whoever comes last

    @property
    def own_seconds(self) -> float:
        """A step without what it spends with the others."""
        return max(0.0, self.step_seconds - (self.collective_seconds or 0.0))


@dataclass(frozen=True, slots=True)
class Ranks:
    """All of them, by number, and what sets one apart."""

    ranks: tuple[Rank, ...]
    remarks: tuple[str, ...]

    @property
    def slowest(self) -> Rank:
        return max(self.ranks, key=_pace(self.ranks))


def compare_ranks(verdicts: Sequence[Verdict]) -> Ranks:
    """Numbers are those that were captured; places in the row where they were not, or twice the same."""
    told = [verdict.case.capture.rank for verdict in verdicts]
    numbers = [number for number in told if number is not None]
    if len(set(numbers)) < len(verdicts):
        numbers = [*range(len(verdicts))]
    ranks = sorted((_rank(*pair) for pair in zip(numbers, verdicts, strict=True)), key=lambda rank: rank.number)
    return Ranks(tuple(ranks), (*_slow(ranks), *_placed_otherwise(ranks), *_found_otherwise(ranks)))


def _rank(number: int, verdict: Verdict) -> Rank:
    case = verdict.case
    waits = sum(site.seconds for site in case.of(Kind.INPUT))
    return Rank(number, verdict, case.step_seconds, waits, _collective_seconds(case))


def _collective_seconds(case: Case) -> float | None:
    """None where the device was not recorded, or did nothing together with others."""
    view = case.device
    if view is None:
        return None
    together = named(view, COLLECTIVE.search)
    return seconds_of(view, when(view, together)) if together.any() else None


def _slow(ranks: Sequence[Rank]) -> Iterator[str]:
    """Ranks go at the pace of the last: where they meet in collectives, it is the one that waits least there."""
    slowest = max(ranks, key=_pace(ranks))
    pace, others = _pace(ranks)(slowest), [_pace(ranks)(rank) for rank in ranks if rank is not slowest]
    usual = median(others) if others else 0.0
    more = pace / usual - 1 if usual else 0.0
    if more < STRAGGLES:
        return
    what = "on a step of its own" if _meet(ranks) else "on a step"
    worse = "lags behind" if more >= LAGS else "is slower than its peers"
    yield f"rank {slowest.number} {worse}: {seconds(pace)} {what}, {percent(more)} more than they"


def _pace(ranks: Sequence[Rank]) -> Callable[[Rank], float]:
    """By what ranks are compared: a step of each as long as the slowest makes it, unless that part is known."""
    return _own if _meet(ranks) else _step


def _own(rank: Rank) -> float:
    return rank.own_seconds


def _step(rank: Rank) -> float:
    return rank.step_seconds


def _meet(ranks: Sequence[Rank]) -> bool:
    return all(rank.collective_seconds is not None for rank in ranks)


def _placed_otherwise(ranks: Sequence[Rank]) -> Iterator[str]:
    """What a line does on one kind of device in most ranks and on another in some."""
    seen = {rank.number: rank.verdict.case.has_gpu for rank in ranks}
    for number in _odd(seen):
        yield f"rank {number} sees {'a' if seen[number] else 'no'} GPU, unlike its peers"
    placed = {rank.number: _places(rank.verdict.case) for rank in ranks}
    for what in dict.fromkeys(name for places in placed.values() for name in places):
        told = {number: places[what] for number, places in placed.items() if what in places}
        for number in _odd(told):
            peers = next(where for other, where in told.items() if where != told[number])
            yield f"rank {number} has {what} on {told[number]} where its peers have it on {peers}"
    yield from _moves_otherwise(ranks)
    yield from _fewer_kernels(ranks)


def _places(case: Case) -> dict[str, str]:
    """Where the data of each line lies: on the host, or on which kind of device. Numbers of devices differ anyway."""
    found: dict[str, set[str]] = {}
    for site in case.of(Kind.UPLOAD, Kind.DOWNLOAD):
        names = {_kind(name) for name in site.values("device") if name}
        if names:
            found.setdefault(f"{site.api} ({site.line or 'no line'})", set()).update(names)
    return {what: " and ".join(sorted(names)) for what, names in found.items()}


def _kind(device: object) -> str:
    """`/job:worker/task:1/device:GPU:0` is a GPU, as `cuda:3` is a cuda."""
    name = str(device).rpartition("device:")[2]
    return name.partition(":")[0] if is_device(device) else "the host"


def _moves_otherwise(ranks: Sequence[Rank]) -> Iterator[str]:
    """An operation that only some ranks place elsewhere."""
    moves = {rank.number: {_move(site) for site in rank.verdict.case.of(Kind.MOVE) if site.in_loop} for rank in ranks}
    for what in dict.fromkeys(name for found in moves.values() for name in found):
        for number in _odd({number: what in found for number, found in moves.items()}):
            does = "moves" if what in moves[number] else "does not move"
            yield f"rank {number} {does} {what}, unlike its peers"


def _move(site: Site) -> str:
    operation = next((name for name in site.values("op") if name), site.api)
    target = next((_kind(name) for name in site.values("target") if name), "elsewhere")
    return f"the data of {operation} to {target} ({site.line or 'no line'})"


def _fewer_kernels(ranks: Sequence[Rank]) -> Iterator[str]:
    views = {rank.number: rank.verdict.case.device for rank in ranks}
    counts = {number: view.kernels_per_step for number, view in views.items() if view is not None}
    for number, count in counts.items():
        usual = median([other for peer, other in counts.items() if peer != number] or [count])
        if count < (1 - FEWER_KERNELS) * usual:
            runs = f"runs {count:.0f} kernels a step where its peers run {usual:.0f}"
            yield f"rank {number} {runs}: the rest runs elsewhere"


def _found_otherwise(ranks: Sequence[Rank]) -> Iterator[str]:
    main = {rank.number: rank.verdict.main.rule if rank.verdict.main else "" for rank in ranks}
    for number in _odd(main):
        finding = next(rank.verdict.main for rank in ranks if rank.number == number)
        what = f"is held back by something else: {finding.title}" if finding else "is held back by nothing"
        yield f"rank {number} {what}"


def _odd(told: Mapping[int, Hashable]) -> list[int]:
    """Ranks that say otherwise than most; of two that differ, the second."""
    usual, _ = Counter(told.values()).most_common(1)[0] if told else (None, 0)
    return [number for number, value in told.items() if value != usual]
