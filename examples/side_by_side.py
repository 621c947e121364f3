"""Harness of the examples: time both variants, compare their answers, write a record.

A variant is an endless generator. It prepares its data, then repeats the same computation, and yields the answer of
each round. `compare` takes as many rounds as it measures, and then closes the generator. The first round includes the
set-up, and its time is reported separately. The later rounds are the measurement. They follow each other without a
pause, like epochs, so that no variant can prefetch outside the measured time.
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
from forebay.core.provenance import provenance
from forebay.core.spec import format_nbytes

__all__ = ["DEVICE", "GPUS", "SCHEMA_VERSION", "Array", "Options", "Variant", "compare", "read_options"]

SCHEMA_VERSION = 1
GPUS = tf.config.list_physical_devices("GPU")
DEVICE = "/GPU:0" if GPUS else "/CPU:0"  # argument of tf.device()
OUT_OF_MEMORY = (tf.errors.ResourceExhaustedError, tf.errors.InternalError)  # TensorFlow raises either

Array: TypeAlias = np.ndarray[Any, Any]
Variant: TypeAlias = Generator[Any, None, None]  # yields the answer of each round, a number


@dataclass(frozen=True, slots=True)
class Options:
    """The command line options of an example."""

    quick: bool
    rounds: int  # measured rounds of each variant
    json: Path | None  # the file that gets the record

    def size(self, *, full: int, quick: int) -> int:
        """Return the size to use: `quick` with --quick, else `full`."""
        return quick if self.quick else full


@dataclass(frozen=True, slots=True)
class Timing:
    """The times of one variant, or the error that ended it."""

    first_seconds: float | None  # of the first round, with the set-up
    seconds: tuple[float, ...]  # of each measured round
    error: str | None = None  # first line of TensorFlow's message
    answer: float | None = None  # of the last round


def read_options() -> Options:
    parser = argparse.ArgumentParser(description="Compare plain TensorFlow with the same work in Forebay.")
    parser.add_argument("--quick", action="store_true", help="small sizes: check that the example runs, not its speed")
    parser.add_argument("--rounds", type=int, default=7, help="measured rounds of each variant (default 7)")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="append the measured times to this file as one record"
    )
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error(f"--rounds {arguments.rounds} is too small. Pass 1 or more.")
    return Options(arguments.quick, 2 if arguments.quick else arguments.rounds, arguments.json)


def compare(
    options: Options, plain: Variant, forebay: Variant, *, steps: int, nbytes: int, tolerance: float | None = 1e-3
) -> None:
    """Time both variants, compare their answers, and print the times.

    With --json, append them to that file. A round has `steps` steps with `nbytes` bytes each. If the relative
    difference of the answers exceeds `tolerance`, the script ends with an error. Pass None if the answers are random.
    """
    timings = {"plain": _measure(plain, options.rounds), "forebay": _measure(forebay, options.rounds)}
    _check_answers(timings, tolerance)
    record = _record(options, timings, steps, nbytes)
    _show(record)
    if options.json is not None:
        _append(options.json, record)


def _measure(variant: Variant, rounds: int) -> Timing:
    """Run a first round and the measured rounds. If memory is short, return the error instead of times."""
    try:
        first_seconds, _ = _time_round(variant)
        rounds_timed = [_time_round(variant) for _ in range(rounds)]
    except OUT_OF_MEMORY as error:
        return Timing(None, (), error=str(error).splitlines()[0])
    finally:
        variant.close()
    return Timing(first_seconds, tuple(seconds for seconds, _ in rounds_timed), answer=float(rounds_timed[-1][1]))


def _time_round(variant: Variant) -> tuple[float, Any]:
    tf.test.experimental.sync_devices()
    start = time.perf_counter()
    answer = next(variant)
    tf.test.experimental.sync_devices()
    return time.perf_counter() - start, answer


def _check_answers(timings: dict[str, Timing], tolerance: float | None) -> None:
    plain, forebay = timings["plain"].answer, timings["forebay"].answer
    if tolerance is None or plain is None or forebay is None:
        return
    if not math.isclose(plain, forebay, rel_tol=tolerance):
        sys.exit(f"the answers differ: plain TensorFlow computed {plain}, Forebay computed {forebay}.")


def _record(options: Options, timings: dict[str, Timing], steps: int, nbytes: int) -> dict[str, Any]:
    machine, versions = Machine.detect(), installed_versions()
    return {
        **provenance(),
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
    medians = {name: _show_variant(name, record[name], record["steps"]) for name in ("plain", "forebay")}
    if None not in medians.values():
        print(f"  ratio    {medians['plain'] / medians['forebay']:.2f} x as fast with Forebay")


def _show_variant(name: str, timing: dict[str, Any], steps: int) -> Any:
    if timing["error"] is not None:
        print(f"  {name:<8} failed: {timing['error']}")
        return None
    median = statistics.median(timing["seconds"])
    print(
        f"  {name:<8} {median / steps * 1e3:.3f} ms per step (median of {len(timing['seconds'])} rounds), "
        f"first round with set-up {timing['first_seconds']:.3f} s"
    )
    return median


def _append(path: Path, record: dict[str, Any]) -> None:
    records = json.loads(path.read_text())["records"] if path.exists() else []
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"schema_version": SCHEMA_VERSION, "records": [*records, record]}, indent=1) + "\n")
