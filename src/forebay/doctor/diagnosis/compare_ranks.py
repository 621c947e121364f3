"""The comparison of the ranks of one run: the slowest rank, and differences between ranks."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from forebay.doctor.analyse.capture_view import CallSite, CaptureView
from forebay.doctor.analyse.device_time import COLLECTIVE, intervals_of, mask_kernels_named, seconds_per_step
from forebay.doctor.analyse.framework import is_device
from forebay.doctor.diagnosis.diagnose import Diagnosis
from forebay.doctor.model.events import EventKind
from forebay.doctor.model.formatting import format_percent, format_seconds

__all__ = ["RankSummary", "RankComparison", "compare_ranks"]

SLOW_SHARE, VERY_SLOW_SHARE = 0.1, 0.2  # excess over the other ranks' step; the limits of TraceML
FEWER_KERNELS_SHARE = 0.2  # share of kernels that a rank lacks; its other operations run elsewhere


@dataclass(frozen=True, slots=True)
class RankSummary:
    """The step of one rank."""

    number: int
    diagnosis: Diagnosis
    step_seconds: float
    input_seconds: float  # per step
    collective_seconds: float | None  # per step, with the wait for the slowest rank

    @property
    def own_seconds(self) -> float:
        """The step without its collectives."""
        return max(0.0, self.step_seconds - (self.collective_seconds or 0.0))


@dataclass(frozen=True, slots=True)
class RankComparison:
    """All ranks by number, and the differences between them."""

    ranks: tuple[RankSummary, ...]
    remarks: tuple[str, ...]

    @property
    def slowest(self) -> RankSummary:
        return max(self.ranks, key=_comparison_key(self.ranks))


def compare_ranks(diagnoses: Sequence[Diagnosis]) -> RankComparison:
    """Compare ranks. If captures lack rank numbers or repeat them, their order gives the numbers."""
    recorded = [diagnosis.view.capture.rank for diagnosis in diagnoses]
    numbers = [number for number in recorded if number is not None]
    if len(set(numbers)) < len(diagnoses):
        numbers = [*range(len(diagnoses))]
    ranks = sorted((_summarise(*pair) for pair in zip(numbers, diagnoses, strict=True)), key=lambda rank: rank.number)
    return RankComparison(
        tuple(ranks), (*_find_slowest(ranks), *_find_placement_differences(ranks), *_find_finding_differences(ranks))
    )


def _summarise(number: int, diagnosis: Diagnosis) -> RankSummary:
    view = diagnosis.view
    waits = sum(site.seconds for site in view.sites_of(EventKind.INPUT))
    return RankSummary(number, diagnosis, view.step_seconds, waits, _collective_seconds(view))


def _collective_seconds(view: CaptureView) -> float | None:
    """Return the time in collectives; None without a device record or without collectives."""
    device_view = view.device
    if device_view is None:
        return None
    together = mask_kernels_named(device_view, COLLECTIVE.search)
    return seconds_per_step(device_view, intervals_of(device_view, together)) if together.any() else None


def _find_slowest(ranks: Sequence[RankSummary]) -> Iterator[str]:
    """Report a slow rank.

    All ranks run at the pace of the slowest one. If they use collectives, the slowest rank is the one that waits least.
    """
    slowest = max(ranks, key=_comparison_key(ranks))
    pace, others = (
        _comparison_key(ranks)(slowest),
        [_comparison_key(ranks)(rank) for rank in ranks if rank is not slowest],
    )
    usual = median(others) if others else 0.0
    more = pace / usual - 1 if usual else 0.0
    if more < SLOW_SHARE:
        return
    what = "per step without collectives" if _share_collectives(ranks) else "per step"
    worse = "is much slower than the others" if more >= VERY_SLOW_SHARE else "is slower than the others"
    yield f"rank {slowest.number} {worse}: {format_seconds(pace)} {what}, {format_percent(more)} more"


def _comparison_key(ranks: Sequence[RankSummary]) -> Callable[[RankSummary], float]:
    """Return the time to compare ranks by.

    Whole steps are equally long on all ranks, because each waits for the slowest. Steps without collectives differ.
    """
    return _own_seconds if _share_collectives(ranks) else _step_seconds


def _own_seconds(rank: RankSummary) -> float:
    return rank.own_seconds


def _step_seconds(rank: RankSummary) -> float:
    return rank.step_seconds


def _share_collectives(ranks: Sequence[RankSummary]) -> bool:
    return all(rank.collective_seconds is not None for rank in ranks)


def _find_placement_differences(ranks: Sequence[RankSummary]) -> Iterator[str]:
    """Report lines whose data is on another kind of device in a minority of ranks."""
    seen = {rank.number: rank.diagnosis.view.has_gpu for rank in ranks}
    for number in _minority(seen):
        yield f"rank {number} sees {'a' if seen[number] else 'no'} GPU, unlike the other ranks"
    placed = {rank.number: _data_locations(rank.diagnosis.view) for rank in ranks}
    for what in dict.fromkeys(name for places in placed.values() for name in places):
        devices = {number: places[what] for number, places in placed.items() if what in places}
        for number in _minority(devices):
            peers = next(where for other, where in devices.items() if where != devices[number])
            yield f"rank {number} has the data of {what} on {devices[number]}; the other ranks have it on {peers}"
    yield from _find_move_differences(ranks)
    yield from _find_missing_kernels(ranks)


def _data_locations(view: CaptureView) -> dict[str, str]:
    """Map each call to the host or the kind of its device. Device numbers differ between ranks."""
    found: dict[str, set[str]] = {}
    for site in view.sites_of(EventKind.UPLOAD, EventKind.DOWNLOAD):
        names = {_device_kind(name) for name in site.values("device") if name}
        if names:
            found.setdefault(f"{site.api} ({site.line or 'no line'})", set()).update(names)
    return {what: " and ".join(sorted(names)) for what, names in found.items()}


def _device_kind(device: object) -> str:
    """Return GPU for `/job:worker/task:1/device:GPU:0`, and cuda for `cuda:3`."""
    name = str(device).rpartition("device:")[2]
    return name.partition(":")[0] if is_device(device) else "the host"


def _find_move_differences(ranks: Sequence[RankSummary]) -> Iterator[str]:
    """Report operations that only a minority of ranks moves to another device."""
    moves = {
        rank.number: {_describe_move(site) for site in rank.diagnosis.view.sites_of(EventKind.MOVE) if site.in_loop}
        for rank in ranks
    }
    for what in dict.fromkeys(name for found in moves.values() for name in found):
        for number in _minority({number: what in found for number, found in moves.items()}):
            does = "moves" if what in moves[number] else "does not move"
            yield f"rank {number} {does} {what}, unlike the other ranks"


def _describe_move(site: CallSite) -> str:
    operation = next((name for name in site.values("op") if name), site.api)
    target = next((_device_kind(name) for name in site.values("target") if name), "elsewhere")
    return f"the data of {operation} to {target} ({site.line or 'no line'})"


def _find_missing_kernels(ranks: Sequence[RankSummary]) -> Iterator[str]:
    views = {rank.number: rank.diagnosis.view.device for rank in ranks}
    counts = {number: device_view.kernels_per_step for number, device_view in views.items() if device_view is not None}
    for number, count in counts.items():
        usual = median([other for peer, other in counts.items() if peer != number] or [count])
        if count < (1 - FEWER_KERNELS_SHARE) * usual:
            yield (
                f"rank {number} runs {count:.0f} kernels per step; the others run "
                f"{usual:.0f}, so some of its operations run elsewhere"
            )


def _find_finding_differences(ranks: Sequence[RankSummary]) -> Iterator[str]:
    main = {rank.number: rank.diagnosis.main.rule if rank.diagnosis.main else "" for rank in ranks}
    for number in _minority(main):
        finding = next(rank.diagnosis.main for rank in ranks if rank.number == number)
        what = (
            f"has another main finding: {finding.title}" if finding else "has no main finding, unlike the other ranks"
        )
        yield f"rank {number} {what}"


def _minority(values: Mapping[int, Hashable]) -> list[int]:
    """Return the ranks whose value differs from the most common one; of two ranks, the second."""
    usual, _ = Counter(values.values()).most_common(1)[0] if values else (None, 0)
    return [number for number, value in values.items() if value != usual]
