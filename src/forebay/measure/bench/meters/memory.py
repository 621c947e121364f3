"""Memory held over many epochs: the most it grew above the data itself, and whether it still grows once warm."""

from itertools import combinations
from statistics import median

from forebay.measure.bench.contenders import ContenderModule
from forebay.measure.bench.data import array
from forebay.measure.bench.memory import held_nbytes
from forebay.measure.bench.meters import Gauge, Pace, Sample
from forebay.measure.bench.model import Skip, StartEpoch, Work

__all__ = ["prepare"]

LOOK_EVERY = 16  # batches


def prepare(contender: ContenderModule, work: Work, pace: Pace) -> Gauge:
    array(work)

    def sample() -> Sample:
        at_start = _held()
        start = contender.epochs(work)
        peaks = [_peak_nbytes(start) for _ in range(int(work.options["epochs"]))]
        early, late = peaks[: len(peaks) // 2], peaks[len(peaks) // 2 :]
        return {
            "grown": (max(peaks) - at_start) / 2**20,
            "late": (max(late) - max(early)) / 2**20,
            "slope": _slope(late) / 2**10,
        }

    return Gauge(lambda: None, sample)


def _peak_nbytes(start: StartEpoch) -> int:
    peak = 0
    for batch, _ in enumerate(start()):
        if batch % LOOK_EVERY == 0:
            peak = max(peak, _held())
    return max(peak, _held())


def _slope(peaks: list[int]) -> float:
    """Bytes an epoch, as the median of the slopes between any two: a leak tilts all, an allocator's step hardly any."""
    pairs = combinations(enumerate(peaks), 2)
    return median((later - earlier) / (n - m) for (m, earlier), (n, later) in pairs)


def _held() -> int:
    held = held_nbytes()
    if held is None:
        raise Skip("this system has no /proc/self/status to read memory from")
    return held
