"""Compare a feed of compressed `.npz` files with plain decompression on all cores.

    python benchmarks/npz_inflate.py [--files 24] [--turns 5] [--json FILE]

The ceiling is the speed of one thread per core. Each thread decompresses one file after the other with isal, and
discards the bytes. The feed opens, decompresses, checks, gathers and hands off the rows. It decompresses all rows again
in each epoch, because its memory budget is a quarter of the data. The files are in the page cache. The contenders run
in turn. Ratios are speeds divided by the ceiling of the same turn: median (smallest to largest).
"""

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
from isal import isal_zlib

import forebay as fb
from forebay.core.machine import Machine
from forebay.sources.files.mapped import MappedFile
from forebay.sources.formats.zip_index import list_members

EPOCHS = 6  # of a feed per turn; the feed also starts to decompress a seventh, which takes little time
CEILING = "isal on all cores"
ROWS = 1024  # per file
ROW_SHAPE = (64, 64, 3)
BUDGET_DIVISOR = 4  # the memory budget is the size of the data divided by this, plus 1 MiB for headers
RAW_DEFLATE = -15  # value of `wbits` for zlib data without a header


def main() -> None:
    arguments = parse_arguments()
    with tempfile.TemporaryDirectory() as folder:
        nbytes = write_files(Path(folder), arguments.files)
        report(measure(Path(folder), nbytes, arguments.turns), nbytes, arguments.json)


def measure(folder: Path, nbytes: int, turns: int) -> dict[str, list[tuple[float, float]]]:
    """Return the MB/s and the CPU seconds per GB of each contender in each turn."""
    contenders: dict[str, Callable[[], int]] = {
        CEILING: partial(inflate_all, folder),
        "np.load, one thread": partial(load_all, folder),
        "feed in order": partial(feed, folder, nbytes, shuffled=False),
        "feed shuffled by file": partial(feed, folder, nbytes, shuffled=True),
    }
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
    for turn in range(turns + 1):  # the first turn is a warm-up
        for name, contender in contenders.items():
            start, cpu_start = time.perf_counter(), time.process_time()
            loaded = contender()
            seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
            if turn:
                samples[name].append((loaded / seconds / 1e6, cpu_seconds / loaded * 1e9))
    return samples


def inflate_all(folder: Path) -> int:
    """Decompress all files in threads, and return the number of bytes."""
    with ThreadPoolExecutor(Machine.detect().cores) as pool:
        return sum(pool.map(inflate_file, sorted(folder.glob("*.npz"))))


def inflate_file(path: Path) -> int:
    file, nbytes = MappedFile(path), 0
    for member in list_members(file):
        compressed = file.read(member.offset, member.stored_nbytes)
        nbytes += len(isal_zlib.decompress(compressed, wbits=RAW_DEFLATE, bufsize=member.nbytes))
    return nbytes


def load_all(folder: Path) -> int:
    nbytes = 0
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as archive:
            nbytes += archive["image"].nbytes
    return nbytes


def feed(folder: Path, nbytes: int, *, shuffled: bool) -> int:
    """Run a feed for some epochs, and return the number of bytes in its batches."""
    pipeline = fb.from_files(str(folder / "*.npz"), max_held_bytes=nbytes // BUDGET_DIVISOR + (1 << 20))
    pipeline = pipeline.shuffle(seed=0) if shuffled else pipeline
    with pipeline.batch(128).feed("numpy") as running_feed:
        return sum(batch["image"].nbytes for batch in chain.from_iterable(running_feed for _ in range(EPOCHS)))


def write_files(folder: Path, files: int) -> int:
    """Write images that compress to about 60 % of their size; return their uncompressed bytes."""
    for number in range(files):
        steps = np.random.default_rng(number).integers(-2, 3, (ROWS, int(np.prod(ROW_SHAPE))), np.int8)
        image = np.cumsum(steps, axis=1, dtype=np.int8).view(np.uint8).reshape(ROWS, *ROW_SHAPE)
        np.savez_compressed(folder / f"{number}.npz", image=image)
    return files * ROWS * int(np.prod(ROW_SHAPE))


def report(samples: dict[str, list[tuple[float, float]]], nbytes: int, path: str | None) -> None:
    """Print medians and ratios to the ceiling, and write all samples to the JSON file."""
    ceilings = [speed for speed, _ in samples[CEILING]]
    print(f"{Machine.detect().cores} cores, Python {platform.python_version()}, {nbytes >> 20} MiB; medians of turns")
    for name, turns in samples.items():
        speed, cpu_seconds = (statistics.median(column) for column in zip(*turns, strict=True))
        ratios = sorted(speed / ceiling for (speed, _), ceiling in zip(turns, ceilings, strict=True))
        ratio = f"{statistics.median(ratios):.2f} x isal ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        print(f"  {name:<22} {speed:6.0f} MB/s  {cpu_seconds:5.2f} CPU s per GB  {ratio}")
    if path is not None:
        document = {"turns": samples, "nbytes": nbytes, "load": os.getloadavg()}
        Path(path).write_text(json.dumps(document, indent=1) + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--files", type=int, default=24, help="number of files, each of 12 MiB uncompressed")
    parser.add_argument("--turns", type=int, default=5, help="measured turns, after one turn of warm-up")
    parser.add_argument("--json", help="write all samples to this file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
