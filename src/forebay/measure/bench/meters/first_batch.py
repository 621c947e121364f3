"""From nothing to the first batch, in ms: the pipeline is made, started and asked once."""

from time import perf_counter

from forebay.measure.bench.contenders import ContenderModule
from forebay.measure.bench.meters import Gauge, Pace, Sample
from forebay.measure.bench.model import Work

__all__ = ["prepare"]


def prepare(contender: ContenderModule, work: Work, pace: Pace) -> Gauge:
    def sample() -> Sample:
        began = perf_counter()
        epoch = contender.epochs(work)()
        next(iter(epoch))
        seconds = perf_counter() - began
        close = getattr(epoch, "close", None)
        if close:
            close()
        return {"first": seconds * 1e3}

    # Warming up would hide the very thing: a process makes its pipeline once.
    return Gauge(lambda: None, sample)
