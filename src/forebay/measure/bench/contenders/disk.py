"""Contenders that read a file from the disk: fio, threads, and a mapped file."""

import itertools
import json
import mmap
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter

import numpy as np

import forebay as fb
from forebay.measure.bench.model import Skip, Workload
from forebay.sources.direct.open_files import direct_alignment

__all__ = ["fio", "mapped_take", "preadv_threads"]

QUEUE_DEPTHS = (16, 32, 64, 128)
TRIAL_SECONDS = 1.0  # time to test one I/O engine or queue depth of fio
THREADS = 8  # threads of `preadv_threads`


def fio(work: Workload) -> Callable[[float], float]:
    """Measure direct reads with fio, at the best of several queue depths."""
    if shutil.which("fio") is None:
        raise Skip("fio is not installed (apt install fio). Compare with the entry 'threads of preadv' instead")
    engine = next((engine for engine in ("io_uring", "libaio") if _run_fio(work, engine, 8, TRIAL_SECONDS)), None)
    if engine is None:
        raise Skip("fio can read this file neither by io_uring nor by libaio")
    depth = max(QUEUE_DEPTHS, key=lambda depth: _run_fio(work, engine, depth, TRIAL_SECONDS))
    return lambda seconds: _run_fio(work, engine, depth, seconds)


def preadv_threads(work: Workload) -> Callable[[float], float]:
    """Read with `preadv` in several threads, without the page cache if possible."""
    direct = getattr(os, "O_DIRECT", 0) if direct_alignment([Path(work.path)]) else 0
    file, offsets = os.open(work.path, os.O_RDONLY | direct), _offsets(work)
    lock, read_nbytes = threading.Lock(), int(work.options["read_nbytes"])

    def read(deadline: float, counts: list[int]) -> None:
        buffer, count = [mmap.mmap(-1, read_nbytes)], 0
        while perf_counter() < deadline:
            with lock:
                offset = next(offsets)
            count += os.preadv(file, buffer, offset)
        counts.append(count)

    def measure(seconds: float) -> float:
        start, counts = perf_counter(), list[int]()
        threads = [threading.Thread(target=read, args=(start + seconds, counts)) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(counts) / (perf_counter() - start)

    return measure


def mapped_take(work: Workload) -> Callable[[float], float]:
    """Gather rows of a mapped file with `np.take`, in the order of a Forebay shuffle."""
    order = fb.from_files(work.path).shuffle(seed=0, block=work.options.get("block")).order
    assert order is not None
    out = np.empty((work.batch, *work.shape), work.dtype)

    def measure(seconds: float) -> float:
        # Map the file in each measurement, and not before: the kernel can drop only pages that are not mapped.
        rows = np.load(work.path, mmap_mode="r")
        start_time, nbytes = perf_counter(), 0
        for start in range(0, work.rows - work.batch, work.batch):
            indices = order.rows(0, np.arange(start, start + work.batch))
            nbytes += np.take(rows, indices, axis=0, out=out, mode="clip").nbytes
            if perf_counter() >= start_time + seconds:
                break
        return nbytes / (perf_counter() - start_time)

    return measure


def _run_fio(work: Workload, engine: str, depth: int, seconds: float) -> float:
    """Return bytes per second, or 0 if fio fails.

    With the option "counted_nbytes", count this number of bytes for each read, the size of a row. A read has more bytes
    than its row if the row does not begin at a sector.
    """
    options = {
        "filename": work.path,
        "rw": work.options["pattern"],
        "bs": work.options["read_nbytes"],
        "ioengine": engine,
        "iodepth": depth,
        "runtime": f"{seconds * 1000:.0f}ms",
    }
    command = [
        "fio",
        "--name=disk",
        "--readonly",
        "--direct=1",
        "--time_based",
        "--norandommap",
        "--output-format=json",
    ]
    command += [f"--{name}={value}" for name, value in options.items()]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    if completed.returncode:
        return 0.0
    counted_nbytes = int(work.options.get("counted_nbytes", work.options["read_nbytes"]))
    return float(json.loads(completed.stdout)["jobs"][0]["read"]["iops"]) * counted_nbytes


def _offsets(work: Workload) -> Iterator[int]:
    """Yield file offsets endlessly: in sequence for the pattern "read", otherwise at random."""
    read_nbytes = int(work.options["read_nbytes"])
    blocks = Path(work.path).stat().st_size // read_nbytes
    if work.options["pattern"] == "read":
        return (number * read_nbytes for number in itertools.cycle(range(blocks)))
    generator = np.random.default_rng(0)
    numbers = (generator.integers(0, blocks, 1 << 14).tolist() for _ in itertools.count())
    return (number * read_nbytes for number in itertools.chain.from_iterable(numbers))
