"""Meter of a contender's memory over many epochs: its peak, and its later growth."""

from itertools import combinations
from statistics import median

from forebay.measure.bench.contenders import ContenderFunction
from forebay.measure.bench.data import make_array
from forebay.measure.bench.meters import ColumnValues, RunSettings, Sampler
from forebay.measure.bench.model import Skip, StartEpoch, Workload
from forebay.measure.bench.proc_stats import used_nbytes

__all__ = ["prepare"]

BATCHES_BETWEEN_READINGS = 16  # memory is not read after every batch, because a reading takes time


def prepare(contender: ContenderFunction, work: Workload, settings: RunSettings) -> Sampler:
    make_array(work)  # the result is cached, so that the data does not count as growth

    def sample() -> ColumnValues:
        nbytes_at_start = _used_nbytes()
        start_epoch = contender(work)
        peaks = [_peak_nbytes(start_epoch) for _ in range(int(work.options["epochs"]))]
        early, late = peaks[: len(peaks) // 2], peaks[len(peaks) // 2 :]
        return {
            # MiB, MiB, and KiB per epoch
            "grown": (max(peaks) - nbytes_at_start) / 2**20,
            "late": (max(late) - max(early)) / 2**20,
            "slope": _slope(late) / 2**10,
        }

    return Sampler(lambda: None, sample)


def _peak_nbytes(start_epoch: StartEpoch) -> int:
    """Run an epoch, and return the largest memory use of all readings."""
    peak = 0
    for number, _ in enumerate(start_epoch()):
        if number % BATCHES_BETWEEN_READINGS == 0:
            peak = max(peak, _used_nbytes())
    return max(peak, _used_nbytes())


def _slope(peaks: list[int]) -> float:
    """Return the growth in bytes per epoch: the median slope over all pairs of epochs.

    A leak raises all slopes. A single allocation raises only the slopes of pairs whose epochs are on both sides of it.
    """
    pairs = combinations(enumerate(peaks), 2)
    return median(
        (last_peak - first_peak) / (last_epoch - first_epoch)
        for (first_epoch, first_peak), (last_epoch, last_peak) in pairs
    )


def _used_nbytes() -> int:
    nbytes = used_nbytes()
    if nbytes is None:
        raise Skip("this system has no /proc/self/status with the memory of a process")
    return nbytes
