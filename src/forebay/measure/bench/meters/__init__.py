"""The meters, which measure contenders; one file per kind of measurement.

A meter is a function `prepare(contender, work, settings) -> Sampler`. Each call of `Sampler.sample()` takes one sample
of every column, so that the processes of a case can run in turn. The meters `first_batch`, `later_first_batch`,
`device_first_batch`, `memory` and `packing` set the contender up in each sample. All other meters set it up once,
before the first sample.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TypeAlias, cast

from forebay.measure.bench.contenders import ContenderFunction
from forebay.measure.bench.model import MeterName, Workload

__all__ = ["ColumnValues", "Prepare", "RunSettings", "Sampler", "load_meter"]

ColumnValues: TypeAlias = dict[str, float]  # one sample: column name -> value

METERS: dict[MeterName, str] = {  # name -> "module:function"
    "throughput": "throughput:prepare",
    "padded_rows": "padded_rows:prepare",
    "handoff": "handoff:prepare",
    "first_batch": "first_batch:prepare",
    "later_first_batch": "first_batch:prepare_later",
    "memory": "memory:prepare",
    "disk": "disk:prepare",
    "device_throughput": "device_throughput:prepare",
    "device_busy": "device_busy:prepare",
    "device_first_batch": "first_batch:prepare_on_device",
    "device_step": "device_step:prepare",
    "keras_fit": "keras_fit:prepare",
    "packing": "packing:prepare",
}


@dataclass(frozen=True, slots=True)
class RunSettings:
    """How long and how often to measure."""

    seconds: float = 1.0  # length of a sample; the meter `throughput` measures each of its two consumers for this time
    warm_up_seconds: float = 1.0
    repeats: int = 5  # rounds; each takes one sample of every entry, unless `Entry.repeats` allows fewer


@dataclass(frozen=True, slots=True)
class Sampler:
    """Warms a contender up, and takes samples of it."""

    warm_up: Callable[[], None]
    sample: Callable[[], ColumnValues]
    consumer: str = ""  # describes the step of the busy consumer, for meters that have one


Prepare: TypeAlias = Callable[[ContenderFunction, Workload, RunSettings], Sampler]


def load_meter(name: MeterName) -> Prepare:
    """Import a meter, and return its `prepare` function."""
    module, _, function = METERS[name].partition(":")
    return cast("Prepare", getattr(import_module(f"{__name__}.{module}"), function))
