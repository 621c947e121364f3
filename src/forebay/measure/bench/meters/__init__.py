"""How a number is taken: one meter a file.

Each file has `prepare(contender, work, pace) -> Gauge`. Setting up and warming up are not measured; a gauge takes one
sample of every column a call, so that the processes of a case can take turns.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol, TypeAlias, cast

from forebay.measure.bench.contenders import ContenderModule
from forebay.measure.bench.model import Meter, Work

__all__ = ["Gauge", "MeterModule", "Pace", "Sample", "load_meter"]

Sample: TypeAlias = dict[str, float]  # column name -> value


@dataclass(frozen=True, slots=True)
class Pace:
    """How long and how often is measured."""

    seconds: float = 1.0  # of one sample of one consumer
    warm_up_seconds: float = 1.0
    repeats: int = 5


@dataclass(frozen=True, slots=True)
class Gauge:
    """A contender that is set up and ready to be measured."""

    warm_up: Callable[[], None]
    sample: Callable[[], Sample]
    consumer: str = ""  # what the busy consumer does, where there is one


class MeterModule(Protocol):
    """What a meter's file offers."""

    def prepare(self, contender: ContenderModule, work: Work, pace: Pace) -> Gauge: ...


def load_meter(meter: Meter) -> MeterModule:
    return cast("MeterModule", import_module(f"{__name__}.{meter}"))
