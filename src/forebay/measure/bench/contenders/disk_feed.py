"""Forebay's feed of a file that is not in memory, through its public face alone."""

from collections.abc import Callable
from time import perf_counter

import forebay as fb
from forebay.feed.feed import Feed
from forebay.measure.bench.model import Work

__all__ = ["reading"]


def reading(work: Work) -> Callable[[float], float]:
    pipeline = fb.from_files(work.path).shuffle(seed=0, block=work.options.get("block")).batch(work.batch)
    feeds: list[Feed] = []  # the last one stays open until the next, so that its memory can be looked at

    def measure(seconds: float) -> float:
        """One epoch, the first of its feed, or as much of it as there is time for; starting it is part of it."""
        while feeds:
            feeds.pop().close()
        began, nbytes = perf_counter(), 0
        feeds.append(pipeline.feed("numpy", host_bytes=work.options["host_bytes"]))
        for batch in feeds[0]:
            nbytes += batch.nbytes
            if perf_counter() >= began + seconds:
                break
        return nbytes / (perf_counter() - began)

    return measure
