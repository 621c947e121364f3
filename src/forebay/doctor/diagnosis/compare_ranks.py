"""The comparison of the ranks of one run: the slowest rank, and other differences."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from forebay.doctor.analyse.capture_view import CallSite, CaptureView
from forebay.doctor.analyse.device_time import COLLECTIVE, mask_kernels_named, seconds_per_step
from forebay.doctor.analyse.framework import is_device
from forebay.doctor.diagnosis.diagnose import Diagnosis
from forebay.doctor.model.events import EventKind
from forebay.doctor.model.formatting import format_percent, format_seconds

__all__ = ["RankSummary", "RankComparison", "compare_ranks"]

# Share by which the time of the slowest rank must exceed the median time of the other ranks. The profiler TraceML has
# these two limits, too.
SLOW_SHARE = 0.1  # the remark says "slower"
VERY_SLOW_SHARE = 0.2  # the remark says "much slower"
# A remark names a rank whose kernels per step are below the median of the other ranks by more than this share.
FEWER_KERNELS_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class RankSummary:
    """The step time of one rank and two of its parts."""

    number: int  # of the rank
    diagnosis: Diagnosis
    step_seconds: float
    input_seconds: float  # per step
    collective_seconds: float | None  # per step, with the wait for the slowest rank; None without recorded collectives

    @property
    def own_seconds(self) -> float:
        """The step time without collectives; the whole step time if `collective_seconds` is None."""
        return max(0.0, self.step_seconds - (self.collective_seconds or 0.0))


@dataclass(frozen=True, slots=True)
class RankComparison:
    """All ranks in the order of their numbers, and the differences between them."""

    ranks: tuple[RankSummary, ...]
    remarks: tuple[str, ...]  # sentences without their full stop

    @property
    def slowest(self) -> RankSummary:
        return max(self.ranks, key=_comparison_key(self.ranks))


def compare_ranks(diagnoses: Sequence[Diagnosis]) -> RankComparison:
    """Compare the ranks of one run.

    If a capture has no rank number, or two captures have the same number, number the ranks in the order of `diagnoses`.
    """
    recorded = [diagnosis.view.capture.rank for diagnosis in diagnoses]
    numbers = [number for number in recorded if number is not None]
    if len(set(numbers)) < len(diagnoses):
        numbers = [*range(len(diagnoses))]
    ranks = sorted((_summarise(*pair) for pair in zip(numbers, diagnoses, strict=True)), key=lambda rank: rank.number)
    return RankComparison(
        tuple(ranks),
        (*_find_slow_rank(ranks), *_find_placement_differences(ranks), *_find_main_finding_differences(ranks)),
    )


def _summarise(number: int, diagnosis: Diagnosis) -> RankSummary:
    view = diagnosis.view
    input_seconds = sum(site.seconds for site in view.sites_of(EventKind.INPUT))
    return RankSummary(number, diagnosis, view.step_seconds, input_seconds, _collective_seconds(view))


def _collective_seconds(view: CaptureView) -> float | None:
    """Return the seconds per step in collectives; None without device records or collectives."""
    device_view = view.device
    if device_view is None:
        return None
    is_collective = mask_kernels_named(device_view, COLLECTIVE.search)
    if not is_collective.any():
        return None
    return seconds_per_step(device_view, device_view.intervals_of(is_collective))


def _find_slow_rank(ranks: Sequence[RankSummary]) -> Iterator[str]:
    """Yield a remark if the slowest rank exceeds the others' median by SLOW_SHARE."""
    seconds_of = _comparison_key(ranks)
    slowest = max(ranks, key=seconds_of)
    slowest_seconds = seconds_of(slowest)
    other_seconds = median([seconds_of(rank) for rank in ranks if rank is not slowest] or [0.0])
    excess = slowest_seconds / other_seconds - 1 if other_seconds else 0.0
    if excess < SLOW_SHARE:
        return
    unit = "per step without collectives" if _have_collectives(ranks) else "per step"
    comparison = "is much slower than the others" if excess >= VERY_SLOW_SHARE else "is slower than the others"
    more = f"{format_percent(excess)} more than their median"
    yield f"rank {slowest.number} {comparison}: {format_seconds(slowest_seconds)} {unit}, {more}"


def _comparison_key(ranks: Sequence[RankSummary]) -> Callable[[RankSummary], float]:
    """Return the function that maps a rank to the seconds by which ranks are compared.

    If all ranks recorded collectives, these are the seconds of a step without collectives. Whole steps cannot be
    compared: they are equally long on all ranks, because each rank waits for the slowest one in the collectives.
    """
    return _own_seconds if _have_collectives(ranks) else _step_seconds


def _own_seconds(rank: RankSummary) -> float:
    return rank.own_seconds


def _step_seconds(rank: RankSummary) -> float:
    return rank.step_seconds


def _have_collectives(ranks: Sequence[RankSummary]) -> bool:
    return all(rank.collective_seconds is not None for rank in ranks)


def _find_placement_differences(ranks: Sequence[RankSummary]) -> Iterator[str]:
    """Yield remarks on ranks with data or operations on other devices than most ranks.

    Compare whether a rank sees a GPU, the devices of transferred data, moves between devices, and numbers of kernels.
    """
    has_gpu = {rank.number: rank.diagnosis.view.has_gpu for rank in ranks}
    for number in _minority(has_gpu):
        yield f"rank {number} sees {'a' if has_gpu[number] else 'no'} GPU, unlike other ranks"
    locations = {rank.number: _data_locations(rank.diagnosis.view) for rank in ranks}
    for call in dict.fromkeys(call for by_call in locations.values() for call in by_call):
        devices = {number: by_call[call] for number, by_call in locations.items() if call in by_call}
        for number in _minority(devices):
            other_devices = next(device for device in devices.values() if device != devices[number])
            yield f"rank {number} has the data of {call} on {devices[number]}; other ranks have it on {other_devices}"
    yield from _find_move_differences(ranks)
    yield from _find_missing_kernels(ranks)


def _data_locations(view: CaptureView) -> dict[str, str]:
    """Map each uploading or downloading call to the kinds of its devices, joined by "and".

    A kind is "cuda" or "the host", for example. It contains no device number, because the numbers differ between ranks.
    """
    kinds_by_call: dict[str, set[str]] = {}
    for site in view.sites_of(EventKind.UPLOAD, EventKind.DOWNLOAD):
        kinds = {_device_kind(name) for name in site.values("device") if name}
        if kinds:
            kinds_by_call.setdefault(f"{site.api} ({site.line or 'no line'})", set()).update(kinds)
    return {call: " and ".join(sorted(kinds)) for call, kinds in kinds_by_call.items()}


def _device_kind(device: object) -> str:
    """Return "GPU" for `/job:worker/task:1/device:GPU:0`, "cuda" for `cuda:3`, "the host" for a CPU."""
    name = str(device).rpartition("device:")[2]
    return name.partition(":")[0] if is_device(device) else "the host"


def _find_move_differences(ranks: Sequence[RankSummary]) -> Iterator[str]:
    """Yield remarks on operations whose data only some ranks move to another device."""
    moves = {
        rank.number: {_describe_move(site) for site in rank.diagnosis.view.sites_of(EventKind.MOVE) if site.in_loop}
        for rank in ranks
    }
    for move in dict.fromkeys(move for rank_moves in moves.values() for move in rank_moves):
        for number in _minority({number: move in rank_moves for number, rank_moves in moves.items()}):
            verb = "moves" if move in moves[number] else "does not move"
            yield f"rank {number} {verb} {move}, unlike other ranks"


def _describe_move(site: CallSite) -> str:
    operation = next((name for name in site.values("op") if name), site.api)
    target = next((_device_kind(name) for name in site.values("target") if name), "elsewhere")
    return f"the data of {operation} to {target} ({site.line or 'no line'})"


def _find_missing_kernels(ranks: Sequence[RankSummary]) -> Iterator[str]:
    """Yield remarks on ranks with fewer kernels per step than others (FEWER_KERNELS_SHARE)."""
    views = {rank.number: rank.diagnosis.view.device for rank in ranks}
    counts = {number: device_view.kernels_per_step for number, device_view in views.items() if device_view is not None}
    for number, count in counts.items():
        other_count = median([other for peer, other in counts.items() if peer != number] or [count])
        if count < (1 - FEWER_KERNELS_SHARE) * other_count:
            yield (
                f"rank {number} runs {count:.0f} kernels per step; the median of the others is "
                f"{other_count:.0f}, so some of its operations probably do not run on its GPU"
            )


def _find_main_finding_differences(ranks: Sequence[RankSummary]) -> Iterator[str]:
    """Yield remarks on ranks whose main finding is of another rule than in most ranks."""
    main_rules = {rank.number: rank.diagnosis.main.rule if rank.diagnosis.main else "" for rank in ranks}
    for number in _minority(main_rules):
        finding = next(rank.diagnosis.main for rank in ranks if rank.number == number)
        difference = (
            f"has another main finding: {finding.title}" if finding else "has no main finding, unlike other ranks"
        )
        yield f"rank {number} {difference}"


def _minority(values: Mapping[int, Hashable]) -> list[int]:
    """Return the ranks that do not have the most common value.

    `values` maps each rank to its value. If two values are equally common, the value of the earlier rank wins.
    """
    most_common, _ = Counter(values.values()).most_common(1)[0] if values else (None, 0)
    return [number for number, value in values.items() if value != most_common]
