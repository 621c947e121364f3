"""What the disk gives by fio's account: direct reads by io_uring or libaio, at the best of several queue depths."""

import json
import shutil
import subprocess
from collections.abc import Callable

from forebay.measure.bench.model import Skip, Work

__all__ = ["reading"]

DEPTHS = (16, 32, 64, 128)
TRIED_SECONDS = 1.0


def reading(work: Work) -> Callable[[float], float]:
    if shutil.which("fio") is None:
        raise Skip("fio is not installed (apt install fio): compare with the threads of preadv instead")
    engine = next((engine for engine in ("io_uring", "libaio") if _speed(work, engine, 8, TRIED_SECONDS)), None)
    if engine is None:
        raise Skip("fio can read this file neither by io_uring nor by libaio")
    depth = max(DEPTHS, key=lambda depth: _speed(work, engine, depth, TRIED_SECONDS))
    return lambda seconds: _speed(work, engine, depth, seconds)


def _speed(work: Work, engine: str, depth: int, seconds: float) -> float:
    """Bytes a second, of each read those that count; nought where fio cannot."""
    asked = {
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
    command += [f"--{name}={value}" for name, value in asked.items()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return 0.0
    counted_nbytes = int(work.options.get("counted_nbytes", work.options["read_nbytes"]))
    return float(json.loads(done.stdout)["jobs"][0]["read"]["iops"]) * counted_nbytes
