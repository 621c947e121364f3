"""The outcome of a scenario: bottleneck, gain of doubling each part, lost GPU hours."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from forebay.measure.simulate.route import RouteStage
from forebay.measure.simulate.scenario import Scenario
from forebay.measure.simulate.simulate import SimulatedRun, default_steps, simulate

__all__ = ["COMPUTE", "PREFETCH", "ScenarioOutcome", "ScenarioPart", "assess", "with_doubled"]

COMPUTE = "training.compute_seconds"
PREFETCH = "training.prefetch"
MIN_GAIN = 0.03  # share of the step time; if no doubled part saves this much, the busiest part is the bottleneck
MIN_BUSY_SHARE = 0.1  # share of the time; doubling a part that is less busy would save almost nothing
LOWER_IS_FASTER = (COMPUTE, "remote.seconds_per_batch")  # parameters that are halved to double the capacity


@dataclass(frozen=True, slots=True)
class ScenarioPart:
    """One server of the route, the GPUs, or the slots."""

    name: str
    parameter: str  # "section.field" of the scenario that sets the capacity of the part
    value: float  # of the parameter; for the slots, their number
    needed: float  # value with which the part is just as fast as the GPUs, without jitter; 0 if unknown
    busy_share: float  # share of time in which the part is busy; for a server, the mean over its parallel channels


@dataclass(frozen=True, slots=True)
class ScenarioOutcome:
    """A simulated run, the same run with batches always ready, and the cluster's parts."""

    run: SimulatedRun
    always_ready: SimulatedRun
    parts: tuple[ScenarioPart, ...]  # from the busiest to the least busy; the slots are last
    doubled_seconds: Mapping[str, float]  # parameter -> step time with doubled capacity, for busy parts and the slots

    @property
    def bottleneck(self) -> ScenarioPart:
        """The part whose doubled capacity saves most step time.

        It is the busiest part if the doubled capacity saves less than `MIN_GAIN`.
        """
        seconds, best = min(
            (self.doubled_seconds[part.parameter], part.name)
            for part in self.parts
            if part.parameter in self.doubled_seconds
        )
        name = best if seconds < (1 - MIN_GAIN) * self.run.step_seconds else self.parts[0].name
        return next(part for part in self.parts if part.name == name)

    @property
    def full_speed_share(self) -> float:
        """The speed of the run, divided by its speed with batches always ready."""
        return min(1.0, self.always_ready.step_seconds / self.run.step_seconds)

    @property
    def epoch_hours(self) -> float:
        return self.run.steps_per_epoch * self.run.step_seconds / 3600

    @property
    def gpu_hours(self) -> float:
        """The GPU hours of one epoch."""
        return self.epoch_hours * self.run.scenario.gpus

    @property
    def gpu_hours_lost_to_feeding(self) -> float:
        """The GPU hours of one epoch in which GPUs wait for batches."""
        return self.gpu_hours * (1 - self.full_speed_share)

    @property
    def gpu_hours_lost_to_each_other(self) -> float:
        """The GPU hours of one epoch that are lost even if batches are always ready.

        In these hours, GPUs wait for other ranks, run all-reduces and take batches.
        """
        return self.gpu_hours * self.full_speed_share * (1 - self.always_ready.busy_share)


def assess(scenario: Scenario, *, steps: int | None = None, seed: int = 0) -> ScenarioOutcome:
    """Simulate a scenario as it is, and then with batches that are always ready.

    For each busy part, and for the slots, run another simulation in which only this part has twice the capacity.
    """
    steps = default_steps(scenario) if steps is None else steps
    run = simulate(scenario, steps=steps, seed=seed)
    always_ready = simulate(scenario, steps=steps, seed=seed, always_ready=True)
    parts = sorted([*_server_parts(run, always_ready), _gpu_part(run)], key=lambda part: part.busy_share, reverse=True)
    parts.append(ScenarioPart("slots", PREFETCH, scenario.slots, 0.0, 0.0))
    parameters = {part.parameter for part in parts if part.busy_share >= MIN_BUSY_SHARE or part.parameter == PREFETCH}
    doubled_seconds = {
        parameter: simulate(with_doubled(scenario, parameter), steps=steps, seed=seed).step_seconds
        for parameter in parameters
    }
    return ScenarioOutcome(run, always_ready, tuple(parts), doubled_seconds)


def with_doubled(scenario: Scenario, parameter: str) -> Scenario:
    """Return the scenario with twice the capacity of one part.

    If `parameter` is that of the slots, also double the batches that remote workers have at the same time.
    """
    if parameter == PREFETCH:
        training = replace(scenario.training, prefetch=2 * scenario.slots)
        remote = replace(scenario.remote, in_flight=2 * scenario.batches_in_flight)
        return replace(scenario, training=training, remote=remote)
    factor = 1 / 2 if parameter in LOWER_IS_FASTER else 2
    section, _, field = parameter.partition(".")
    description, value = getattr(scenario, section), parameter_value(scenario, parameter)
    changed: Any = round(value * factor) if isinstance(value, int) else value * factor
    return replace(scenario, **{section: replace(description, **{field: changed})})


def parameter_value(scenario: Scenario, parameter: str) -> Any:
    """Return the value of a parameter such as "host.workers"."""
    section, _, field = parameter.partition(".")
    return getattr(getattr(scenario, section), field)


def _server_parts(run: SimulatedRun, always_ready: SimulatedRun) -> Iterator[ScenarioPart]:
    for stage in run.route.stages:
        value, busy_seconds = parameter_value(run.scenario, stage.parameter), _busy_seconds(stage, run.scenario)
        needed = 0.0 if stage.parameter in LOWER_IS_FASTER else value * busy_seconds / always_ready.step_seconds
        busy_share = min(1.0, busy_seconds / run.step_seconds)
        yield ScenarioPart(stage.server.name, stage.parameter, value, needed, busy_share)


def _busy_seconds(stage: RouteStage, scenario: Scenario) -> float:
    """Return how many seconds per step each channel of a server is busy."""
    return stage.seconds * scenario.gpus / stage.server.total_channels


def _gpu_part(run: SimulatedRun) -> ScenarioPart:
    return ScenarioPart("GPUs", COMPUTE, run.scenario.training.compute_seconds, 0.0, run.busy_share)
