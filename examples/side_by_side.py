"""Harness of the numbered examples: time both variants, compare their answers, print the times, write a record.

A variant is an endless generator. It prepares its data, then repeats the same computation, and yields the answer of
each round. `compare` takes as many rounds as it measures, and then closes the generator. The first round includes the
set-up, and its time is reported separately. The later rounds are the measurement. They follow each other without a
pause, like epochs, so that no variant can prefetch outside the measured time.
"""

import argparse
import math
import sys
import time
from collections.abc import Generator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

import record_file
import tensorflow as tf

import forebay as fb
from forebay.core.machine import Machine, installed_versions
from forebay.core.provenance import provenance

__all__ = ["DEVICE", "Variant", "compare"]

GPUS = tf.config.list_physical_devices("GPU")
DEVICE = "/GPU:0" if GPUS else "/CPU:0"  # argument of tf.device()
GPU_RESULTS = Path(__file__).parent.parent / "benchmarks" / "results" / "examples-h200.json"
OUT_OF_MEMORY = (tf.errors.ResourceExhaustedError, tf.errors.InternalError)  # TensorFlow raises either
TOLERANCE = 1e-3  # relative difference of equal answers; float32 sums depend on the order of their terms

Variant: TypeAlias = Generator[Any, None, None]  # yields the answer of each round, a number


@dataclass(frozen=True, slots=True)
class Timing:
    """The times of one variant, or the error that ended it."""

    first_seconds: float | None  # of the first round, with the set-up
    seconds: tuple[float, ...]  # of each measured round
    error: str | None = None  # first line of TensorFlow's message
    answer: float | None = None  # of the last round


def compare(
    plain: Variant, forebay: Variant, *, steps: int, nbytes: int, look_at: str, random_answers: bool = False
) -> None:
    """Time both variants, compare their answers, and print the times and what to look at.

    With `--json FILE`, append the times to FILE. A round has `steps` steps with `nbytes` bytes each. If the answers
    differ, the script ends with an error, unless they are random.
    """
    options = _parse_options()
    timings = {"plain": _measure("plain", plain, options.rounds)}
    timings["forebay"] = _measure("forebay", forebay, options.rounds)
    if not random_answers:
        _check_answers(timings)
    record = _record(options.quick, timings, steps, nbytes)
    if options.json is not None:
        record_file.append(options.json, record)
    gpu_records = record_file.latest(GPU_RESULTS) if GPU_RESULTS.exists() else {}
    print(record_file.report(record, look_at, gpu_records.get(record["example"])))


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Compare plain TensorFlow with the same work in Forebay.",
        allow_abbrev=False,  # the examples look for "--quick" in sys.argv
    )
    parser.add_argument("--quick", action="store_true", help="small sizes: check that the example runs, not its speed")
    parser.add_argument("--rounds", type=int, help="measured rounds of each variant (default 7, or 2 with --quick)")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="append the measured times to this file as one record"
    )
    options = parser.parse_args()
    if options.rounds is None:
        options.rounds = 2 if options.quick else 7
    if options.rounds < 1:
        parser.error(f"--rounds {options.rounds} is too small. Pass 1 or more.")
    if options.json is not None and options.json.exists():
        record_file.read(options.json)  # a wrong file is an error before the measurement, not after it
    return options


def _measure(name: str, variant: Variant, rounds: int) -> Timing:
    """Run a first round and the measured rounds. If memory is short, return the error instead of times."""
    try:
        first_seconds, answer = _time_round(variant)
        _report(f"{name}: set-up and first round, {first_seconds:.2f} s")
        measured = []
        for number in range(1, rounds + 1):
            seconds, answer = _time_round(variant)
            _report(f"{name}: round {number} of {rounds}, {seconds:.2f} s")
            measured.append(seconds)
    except OUT_OF_MEMORY as error:
        return Timing(None, (), error=str(error).splitlines()[0])
    finally:
        variant.close()
    return Timing(first_seconds, tuple(measured), answer=float(answer))


def _time_round(variant: Variant) -> tuple[float, Any]:
    tf.test.experimental.sync_devices()
    start = time.perf_counter()
    answer = next(variant)
    tf.test.experimental.sync_devices()
    return time.perf_counter() - start, answer


def _report(progress: str) -> None:
    if sys.stderr.isatty():
        print(progress, file=sys.stderr)


def _check_answers(timings: dict[str, Timing]) -> None:
    plain, forebay = timings["plain"].answer, timings["forebay"].answer
    if plain is not None and forebay is not None and not math.isclose(plain, forebay, rel_tol=TOLERANCE):
        sys.exit(f"the answers differ: plain TensorFlow computed {plain}, Forebay computed {forebay}.")


def _record(quick: bool, timings: dict[str, Timing], steps: int, nbytes: int) -> dict[str, Any]:
    machine, versions = Machine.detect(), installed_versions()
    return {
        **provenance(),
        "example": Path(sys.argv[0]).stem,
        "device": _device_name(),
        "quick": quick,
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
