"""A feed of compressed `.npz` files beside the inflate of its own library on all cores, of the same members.

    python benchmarks/npz_inflate.py [--files 24] [--turns 5] [--json FILE]

Threads, one a core, inflate member after member with isal and throw the bytes away: that is the ceiling. The feed
opens, inflates, checks, gathers and hands over the rows, each epoch anew, since it may hold a fourth of them. Files
are in the page cache. Turns alternate.
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

EPOCHS = 6  # by the feed, which unpacks the next one ahead; a single one would be charged with that
CEILING = "isal on all cores"
ROWS, ROW_SHAPE = 1024, (64, 64, 3)
HELD_SHARE = 4  # of all bytes; and a little more, for headers
RAW = -15


def main() -> None:
    asked = parse_arguments()
    with tempfile.TemporaryDirectory() as folder:
        nbytes = write_files(Path(folder), asked.files)
        report(measure(Path(folder), nbytes, asked.turns), nbytes, asked.json)


def measure(folder: Path, nbytes: int, turns: int) -> dict[str, list[tuple[float, float]]]:
    """Megabytes a second of each contender, and seconds of CPU a gigabyte, turn by turn."""
    contenders: dict[str, Callable[[], int]] = {
        CEILING: partial(inflate_all, folder),
        "np.load, one thread": partial(load_all, folder),
        "feed in order": partial(feed, folder, nbytes, shuffled=False),
        "feed shuffled by file": partial(feed, folder, nbytes, shuffled=True),
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
    for turn in range(turns + 1):  # the first is not counted
        for name, contender in contenders.items():
            began, used = time.perf_counter(), time.process_time()
            given = contender()
            seconds, busy = time.perf_counter() - began, time.process_time() - used
            if turn:
                found[name].append((given / seconds / 1e6, busy / given * 1e9))
    return found


def inflate_all(folder: Path) -> int:
    with ThreadPoolExecutor(Machine.detect().cores) as pool:
        return sum(pool.map(inflate_file, sorted(folder.glob("*.npz"))))


def inflate_file(path: Path) -> int:
    file, nbytes = MappedFile(path), 0
    for member in list_members(file):
        packed = file.read(member.offset, member.stored_nbytes)
        nbytes += len(isal_zlib.decompress(packed, wbits=RAW, bufsize=member.nbytes))
    return nbytes


def load_all(folder: Path) -> int:
    nbytes = 0
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as archive:
            nbytes += archive["image"].nbytes
    return nbytes


def feed(folder: Path, nbytes: int, *, shuffled: bool) -> int:
    pipeline = fb.from_files(str(folder / "*.npz"), max_held_bytes=nbytes // HELD_SHARE + (1 << 20))
    pipeline = pipeline.shuffle(seed=0) if shuffled else pipeline
    with pipeline.batch(128).feed("numpy") as running:
        return sum(batch["image"].nbytes for batch in chain.from_iterable(running for _ in range(EPOCHS)))


def write_files(folder: Path, files: int) -> int:
    """Images of a random walk, which deflate to some six tenths; their bytes."""
    for number in range(files):
        steps = np.random.default_rng(number).integers(-2, 3, (ROWS, int(np.prod(ROW_SHAPE))), np.int8)
        image = np.cumsum(steps, axis=1, dtype=np.int8).view(np.uint8).reshape(ROWS, *ROW_SHAPE)
        np.savez_compressed(folder / f"{number}.npz", image=image)
    return files * ROWS * int(np.prod(ROW_SHAPE))


def report(found: dict[str, list[tuple[float, float]]], nbytes: int, path: str | None) -> None:
    ceilings = [speed for speed, _ in found[CEILING]]
    print(f"{Machine.detect().cores} cores, Python {platform.python_version()}, {nbytes >> 20} MiB; medians of turns")
    for name, turns in found.items():
        speed, used = (statistics.median(column) for column in zip(*turns, strict=True))
        ratios = sorted(speed / ceiling for (speed, _), ceiling in zip(turns, ceilings, strict=True))
        told = f"{statistics.median(ratios):.2f} x isal ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        print(f"  {name:<22} {speed:6.0f} MB/s  {used:5.2f} s of CPU a GB  {told}")
    if path is not None:
        told = {"turns": found, "nbytes": nbytes, "load": os.getloadavg()}
        Path(path).write_text(json.dumps(told, indent=1) + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--files", type=int, default=24)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--json")
    return parser.parse_args()


if __name__ == "__main__":
    main()
