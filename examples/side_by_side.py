"""What every example shares: both ways timed, their answers compared, and a record of it.

A way is a generator: it sets up, then computes the same thing again and again and yields the answer of each round. The
time up to the first answer, set-up included, is told apart; the rounds after it are the measured ones. The rounds of a
way follow one another without a pause, as epochs do, so that nothing is prepared for free in between.
"""

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Generator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

import forebay as fb
from forebay.core.machine import Machine, installed_versions
from forebay.core.spec import format_nbytes

__all__ = ["DEVICE", "GPUS", "SCHEMA_VERSION", "Array", "Options", "Way", "compare", "read_options"]

SCHEMA_VERSION = 1
GPUS = tf.config.list_physical_devices("GPU")
DEVICE = "/GPU:0" if GPUS else "/CPU:0"  # what people write into tf.device()
OUT_OF_MEMORY = (tf.errors.ResourceExhaustedError, tf.errors.InternalError)  # TensorFlow says it in both ways

Array: TypeAlias = np.ndarray[Any, Any]
Way: TypeAlias = Generator[Any, None, None]


@dataclass(frozen=True, slots=True)
class Options:
    """What an example was asked for."""

    quick: bool
    rounds: int
    json: Path | None

    def size(self, full: int, quick: int) -> int:
        return quick if self.quick else full


@dataclass(frozen=True, slots=True)
class Timing:
    """What one way took; `error` says why it did not get through."""

    first_seconds: float | None
    seconds: tuple[float, ...]
    error: str | None = None
    answer: float | None = None


def read_options() -> Options:
    parser = argparse.ArgumentParser(description="Times plain TensorFlow beside the same work with Forebay.")
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it runs, not how fast")
    parser.add_argument("--rounds", type=int, default=7, help="measured rounds of each way (default 7)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="append one record to this file")
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error(f"--rounds {arguments.rounds} measures nothing: pass 1 or more.")
    return Options(arguments.quick, 2 if arguments.quick else arguments.rounds, arguments.json)


def compare(
    options: Options, plain: Way, forebay: Way, *, steps: int, nbytes: int, tolerance: float | None = 1e-3
) -> None:
    """Run both ways, check that they found the same, print what they took and keep it where --json says.

    `steps` and `nbytes` say what a round is made of: so many steps, each on so many bytes. `tolerance` is how far the
    answers may lie apart; None where chance is part of the work.
    """
    timings = {"plain": _measure(plain, options.rounds), "forebay": _measure(forebay, options.rounds)}
    _check_answers(timings, tolerance)
    record = _record(options, timings, steps, nbytes)
    _show(record)
    if options.json is not None:
        _append(options.json, record)


def _measure(way: Way, rounds: int) -> Timing:
    try:
        first_seconds, _ = _timed(way)
        timed = [_timed(way) for _ in range(rounds)]
    except OUT_OF_MEMORY as error:
        return Timing(None, (), error=str(error).splitlines()[0])
    finally:
        way.close()
    return Timing(first_seconds, tuple(seconds for seconds, _ in timed), answer=float(timed[-1][1]))


def _timed(way: Way) -> tuple[float, Any]:
    tf.test.experimental.sync_devices()
    began = time.perf_counter()
    answer = next(way)
    tf.test.experimental.sync_devices()
    return time.perf_counter() - began, answer


def _check_answers(timings: dict[str, Timing], tolerance: float | None) -> None:
    plain, forebay = timings["plain"].answer, timings["forebay"].answer
    if tolerance is None or plain is None or forebay is None:
        return
    if not math.isclose(plain, forebay, rel_tol=tolerance):
        sys.exit(f"the two ways disagree: plain TensorFlow found {plain}, Forebay {forebay}.")


def _record(options: Options, timings: dict[str, Timing], steps: int, nbytes: int) -> dict[str, Any]:
    machine, versions = Machine.here(), installed_versions()
    return {
        "example": Path(sys.argv[0]).stem,
        "device": _device_name(),
        "quick": options.quick,
        "steps": steps,
        "step_nbytes": nbytes,
        **{name: asdict(timing) for name, timing in timings.items()},
        "machine": {"cpu": machine.cpu, "cores": machine.cores, "python": machine.python},
        "versions": {
            "forebay": fb.__version__,
            "tensorflow": tf.__version__,
            **{name: versions[name] for name in ("keras", "numpy") if name in versions},
        },
    }


def _device_name() -> str:
    if not GPUS:
        return "CPU"
    return str(tf.config.experimental.get_device_details(GPUS[0]).get("device_name", "GPU"))


def _show(record: dict[str, Any]) -> None:
    print(
        f"{record['example']} on {record['device']}: {record['steps']} steps of {format_nbytes(record['step_nbytes'])}"
    )
    medians = {name: _show_way(name, record[name], record["steps"]) for name in ("plain", "forebay")}
    if None not in medians.values():
        print(f"  ratio    {medians['plain'] / medians['forebay']:.2f} x as fast with Forebay")


def _show_way(name: str, timing: dict[str, Any], steps: int) -> Any:
    if timing["error"] is not None:
        print(f"  {name:<8} failed: {timing['error']}")
        return None
    median = statistics.median(timing["seconds"])
    print(
        f"  {name:<8} {median / steps * 1e3:.3f} ms a step (median of {len(timing['seconds'])} rounds), "
        f"first round with set-up {timing['first_seconds']:.3f} s"
    )
    return median


def _append(path: Path, record: dict[str, Any]) -> None:
    kept = json.loads(path.read_text())["records"] if path.exists() else []
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"schema_version": SCHEMA_VERSION, "records": [*kept, record]}, indent=1) + "\n")
