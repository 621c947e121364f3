"""Measure the memory of several ranks on one host that read the same mapped file.

    python benchmarks/rank_memory.py FOLDER [--ranks 4] [--gib 8] [--to torch]

Each rank is a process of its own. It imports the framework, reads its shard of one epoch, and reports its proportional
set size (PSS) before and after: pages that n processes share count as 1/n in each. The script prints the sum of the
growth over all ranks, for one rank and for several.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROW_NBYTES = 150_528  # 224 x 224 x 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--gib", type=float, default=8.0)
    parser.add_argument("--to", default="torch")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    work = parser.parse_args()
    path = work.folder / f"rows-{work.gib:g}.npy"
    if work.rank is not None:
        run_rank(work, path)
        return
    write_rows(path, int(work.gib * 2**30) // ROW_NBYTES)
    alone = measure(work, 1)
    together = measure(work, work.ranks)
    print(f"1 rank: {alone / 2**30:.2f} GiB")
    print(f"{work.ranks} ranks: {together / 2**30:.2f} GiB in all, {together / alone:.3f} x of one")


def write_rows(path: Path, rows: int) -> None:
    import numpy as np

    if path.exists():
        return
    array = np.lib.format.open_memmap(path, "w+", np.uint8, (rows, ROW_NBYTES))
    block = np.random.default_rng(0).integers(0, 255, (256, ROW_NBYTES), dtype=np.uint8)
    for start in range(0, rows, 256):
        array[start : start + 256] = block[: rows - start]
    array.flush()


def measure(work: argparse.Namespace, ranks: int) -> int:
    """Return by how many bytes the PSS of all ranks together grows while they read an epoch."""
    command = [sys.executable, __file__, str(work.folder), f"--gib={work.gib}", f"--to={work.to}", f"--ranks={ranks}"]
    processes = [
        subprocess.Popen([*command, f"--rank={rank}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for rank in range(ranks)
    ]

    def read_all() -> list[Any]:
        return [json.loads(process.stdout.readline()) for process in processes if process.stdout]

    def continue_all() -> None:
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()

    before = read_all()  # all ranks have imported the framework
    continue_all()
    rows = read_all()  # all ranks have read their rows
    continue_all()
    after = read_all()
    # Each rank waits for the end of its input, so that all ranks are alive while one of them measures.
    for process in processes:
        process.communicate()
    print(f"  {ranks} ranks read {sum(rows)} rows")
    return sum(after) - sum(before)


def run_rank(work: argparse.Namespace, path: Path) -> None:
    import importlib

    import forebay as fb

    importlib.import_module(work.to)
    print(read_pss(), flush=True)
    sys.stdin.readline()
    pipeline = fb.from_files(path).shuffle(seed=0).shard(work.rank, work.ranks).batch(64)
    with pipeline.feed(work.to) as feed:
        rows = sum(len(batch) for batch in feed)
        print(rows, flush=True)
        sys.stdin.readline()
        print(read_pss(), flush=True)
        sys.stdin.read()


def read_pss() -> int:
    """Return the proportional set size of this process, in bytes."""
    for line in Path(f"/proc/{os.getpid()}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("the kernel reports no PSS")


if __name__ == "__main__":
    main()
