"""What the disk gives to threads of plain positioned reads, each into memory of its own; nothing is done with it."""

import itertools
import mmap
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter

import numpy as np

from forebay.measure.bench.model import Work
from forebay.sources.direct.open_files import direct_alignment

__all__ = ["reading"]

THREADS = 8


def reading(work: Work) -> Callable[[float], float]:
    direct = getattr(os, "O_DIRECT", 0) if direct_alignment([Path(work.path)]) else 0
    file, offsets = os.open(work.path, os.O_RDONLY | direct), _offsets(work)
    lock, read_nbytes = threading.Lock(), int(work.options["read_nbytes"])

    def read(until: float, counts: list[int]) -> None:
        buffer, count = [mmap.mmap(-1, read_nbytes)], 0
        while perf_counter() < until:
            with lock:
                offset = next(offsets)
            count += os.preadv(file, buffer, offset)
        counts.append(count)

    def measure(seconds: float) -> float:
        began, counts = perf_counter(), list[int]()
        threads = [threading.Thread(target=read, args=(began + seconds, counts)) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(counts) / (perf_counter() - began)

    return measure


def _offsets(work: Work) -> Iterator[int]:
    """From the front on, round and round; or anywhere."""
    read_nbytes = int(work.options["read_nbytes"])
    pieces = Path(work.path).stat().st_size // read_nbytes
    if work.options["pattern"] == "read":
        return (number * read_nbytes for number in itertools.cycle(range(pieces)))
    generator = np.random.default_rng(0)
    chunks = (generator.integers(0, pieces, 1 << 14).tolist() for _ in itertools.count())
    return (number * read_nbytes for number in itertools.chain.from_iterable(chunks))
