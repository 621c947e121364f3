"""What a scenario comes to: its pace, what sets it, what doubling each part would win, and what waiting costs."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from forebay.measure.simulate.route import Stage
from forebay.measure.simulate.scenario import Scenario
from forebay.measure.simulate.simulate import Run, simulate, usual_steps

__all__ = ["COMPUTE", "PREFETCH", "Outcome", "Part", "judge", "widened"]

COMPUTE = "training.compute_seconds"
PREFETCH = "training.prefetch"
LEAST_WIN = 0.03  # of a step
IN_USE = 0.1  # of the time: doubling what is used less wins next to nothing
FEWER_IS_WIDER = (COMPUTE, "remote.seconds_per_batch")


@dataclass(frozen=True, slots=True)
class Part:
    """One station of the way, or the GPUs themselves."""

    name: str
    knob: str
    value: float  # of the knob
    needed: float  # of the knob, so that GPUs never wait for this part; 0 where that cannot be said
    busy_share: float  # of its servers
    doubled_seconds: float | None = None  # a step, with twice as much of it; None where it is hardly used


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run beside the same one on batches that are always there."""

    run: Run
    unfed: Run
    parts: tuple[Part, ...]  # the busiest first

    @property
    def bottleneck(self) -> Part:
        """The part that is worth doubling most; where none is worth it, the busiest."""
        seconds, best = min(
            (part.doubled_seconds, part.name) for part in self.parts if part.doubled_seconds is not None
        )
        name = best if seconds < (1 - LEAST_WIN) * self.run.step_seconds else self.parts[0].name
        return next(part for part in self.parts if part.name == name)

    @property
    def fed_share(self) -> float:
        """The pace, as a share of what the GPUs would keep if batches were always there."""
        return min(1.0, self.unfed.step_seconds / self.run.step_seconds)

    @property
    def epoch_hours(self) -> float:
        return self.run.steps_an_epoch * self.run.step_seconds / 3600

    @property
    def gpu_hours(self) -> float:
        """Of an epoch."""
        return self.epoch_hours * self.run.scenario.gpus

    @property
    def gpu_hours_lost_to_feeding(self) -> float:
        return self.gpu_hours * (1 - self.fed_share)

    @property
    def gpu_hours_lost_to_each_other(self) -> float:
        """Waited for the slowest rank and for the all-reduce, however well fed."""
        return self.gpu_hours * self.fed_share * (1 - self.unfed.busy_share)


def judge(scenario: Scenario, *, steps: int | None = None, seed: int = 0) -> Outcome:
    """Simulate a scenario, and again with each part doubled that is used to speak of, and with more slots."""
    steps = usual_steps(scenario) if steps is None else steps
    run = simulate(scenario, steps=steps, seed=seed)
    unfed = simulate(scenario, steps=steps, seed=seed, fed=False)
    parts = sorted([*_stations(run, unfed), _gpus(run)], key=lambda part: part.busy_share, reverse=True)
    parts.append(Part("slots", PREFETCH, scenario.slots, 0.0, 0.0))
    knobs = {part.knob for part in parts if part.busy_share >= IN_USE or part.knob == PREFETCH}
    doubled = {knob: simulate(widened(scenario, knob), steps=steps, seed=seed).step_seconds for knob in knobs}
    return Outcome(run, unfed, tuple(replace(part, doubled_seconds=doubled.get(part.knob)) for part in parts))


def widened(scenario: Scenario, knob: str, times: float = 2) -> Scenario:
    """The scenario with more of one part. More slots are more batches in flight, too."""
    if knob == PREFETCH:
        training = replace(scenario.training, prefetch=round(scenario.slots * times))
        remote = replace(scenario.remote, in_flight=round(scenario.in_flight * times))
        return replace(scenario, training=training, remote=remote)
    factor = 1 / times if knob in FEWER_IS_WIDER else times
    section, _, field = knob.partition(".")
    part, value = getattr(scenario, section), value_of(scenario, knob)
    wider: Any = round(value * factor) if isinstance(value, int) else value * factor
    return replace(scenario, **{section: replace(part, **{field: wider})})


def value_of(scenario: Scenario, knob: str) -> Any:
    section, _, field = knob.partition(".")
    return getattr(getattr(scenario, section), field)


def _stations(run: Run, unfed: Run) -> Iterator[Part]:
    for stage in run.way.stages:
        value, used = value_of(run.scenario, stage.knob), _used_seconds(stage, run.scenario)
        needed = 0.0 if stage.knob in FEWER_IS_WIDER else value * used / unfed.step_seconds
        yield Part(stage.station.name, stage.knob, value, needed, min(1.0, used / run.step_seconds))


def _used_seconds(stage: Stage, scenario: Scenario) -> float:
    """Of each server, in a step; what a batch asks of a station is the same in all of them."""
    return stage.seconds * scenario.gpus / stage.station.all_servers


def _gpus(run: Run) -> Part:
    return Part("GPUs", COMPUTE, run.scenario.training.compute_seconds, 0.0, run.busy_share)
