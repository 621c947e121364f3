"""Meter of the GB/s from a file that is not in the page cache.

The meter also measures how much the memory of the process grows, and how much of the file is in the page cache after
the reads. A contender of this meter returns a function that reads for about the given number of seconds and returns
bytes per second.
"""

from collections.abc import Callable

from forebay.measure.bench.contenders import ContenderFunction
from forebay.measure.bench.meters import ColumnValues, RunSettings, Sampler
from forebay.measure.bench.model import Workload
from forebay.measure.bench.proc_stats import used_nbytes
from forebay.measure.bench.uncached_file import cached_nbytes, drop_from_page_cache, require_file

__all__ = ["prepare"]


def prepare(contender: ContenderFunction, work: Workload, settings: RunSettings) -> Sampler:
    path = require_file(work)
    drop_from_page_cache(path)
    nbytes_at_start = used_nbytes() or 0
    read: Callable[[float], float] = contender(work)

    def sample() -> ColumnValues:
        drop_from_page_cache(path)
        bytes_per_second = read(settings.seconds * float(work.options["time_factor"]))
        grown = ((used_nbytes() or 0) - nbytes_at_start) / 2**20
        return {"speed": bytes_per_second / 1e9, "grown": grown, "cached": cached_nbytes(path) / 2**20}

    return Sampler(lambda: None, sample)
