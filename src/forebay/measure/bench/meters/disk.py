"""Bytes a second from files that are not in memory, how much memory that took, and what it left in the page cache.

A contender of this meter has `reading(work) -> Callable[[float], float]`: called with seconds, it reads for about so
long and tells how many bytes a second it gave.
"""

from collections.abc import Callable
from typing import Protocol, cast

from forebay.measure.bench.cold import cached_nbytes, check_there, forget
from forebay.measure.bench.contenders import ContenderModule
from forebay.measure.bench.memory import held_nbytes
from forebay.measure.bench.meters import Gauge, Pace, Sample
from forebay.measure.bench.model import Work

__all__ = ["prepare"]


class DiskContender(Protocol):
    """What a contender of this meter offers."""

    def reading(self, work: Work) -> Callable[[float], float]: ...


def prepare(contender: ContenderModule, work: Work, pace: Pace) -> Gauge:
    path = check_there(work)
    forget(path)
    at_start = held_nbytes() or 0
    read = cast("DiskContender", contender).reading(work)

    def sample() -> Sample:
        forget(path)
        speed = read(pace.seconds * float(work.options["seconds"]))
        grown = ((held_nbytes() or 0) - at_start) / 2**20
        return {"speed": speed / 1e9, "grown": grown, "cached": cached_nbytes(path) / 2**20}

    return Gauge(lambda: None, sample)
