"""Simulation of the training steps of all ranks; each step ends with the slowest GPU.

Every batch needs a slot. With n slots, the host starts to prepare batch k when the training loop takes batch k - n. The
host starts to read batch k from a store when the loop takes batch k - n - `Scenario.prefetched_batches`. With remote
maps, it also waits with batch k until batch k - `Scenario.batches_in_flight` has arrived.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from forebay.core.spec import Array
from forebay.errors import ScenarioError
from forebay.measure.simulate.route import Route, jitter_factors, plan_route
from forebay.measure.simulate.scenario import Scenario

__all__ = ["WARM_UP", "SimulatedRun", "StepTimes", "default_steps", "simulate"]

MIN_STEPS = 300  # lower limit of `default_steps`
MAX_STEPS = 1500  # upper limit of `default_steps`, because a simulation should take only seconds
# Steps for each slot and each prefetched batch. With fewer, one late reply of the store would change the mean too much.
STEPS_PER_PREPARED_BATCH = 10
WARM_UP = 1 / 3  # share of the steps that do not count: all slots are free at the start, so these steps are faster


@dataclass(frozen=True, slots=True)
class StepTimes:
    """The times of one step, in seconds since the start of the run."""

    received: Array  # when each rank has taken its batch
    computed: Array  # when each rank finished its computation
    ended: float  # when the all-reduce of all ranks has ended


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """The result of a simulation."""

    scenario: Scenario
    route: Route
    steps: int  # including the warm-up
    step_seconds: float  # mean of the steps after the warm-up
    compute_seconds: float  # per step and GPU, mean of the steps after the warm-up
    seconds: float  # of all steps together

    @property
    def busy_share(self) -> float:
        """The share of the step time in which a GPU computes instead of waiting."""
        return self.compute_seconds / self.step_seconds if self.step_seconds else 0.0

    @property
    def steps_per_epoch(self) -> float:
        return self.scenario.data.rows / (self.scenario.training.batch_rows * self.scenario.gpus)


def default_steps(scenario: Scenario) -> int:
    """Return the number of steps that gives a stable mean step time."""
    return min(MAX_STEPS, max(MIN_STEPS, STEPS_PER_PREPARED_BATCH * (scenario.slots + scenario.prefetched_batches)))


def simulate(
    scenario: Scenario, *, steps: int | None = None, seed: int = 0, always_ready: bool = False
) -> SimulatedRun:
    """Simulate some steps of the scenario; with `always_ready`, no step waits for a batch."""
    steps = default_steps(scenario) if steps is None else steps
    if steps < 3 or seed < 0:
        raise ScenarioError(f"steps={steps} with seed={seed} is not possible. Give at least 3 steps and a seed >= 0.")
    route = Route((), ()) if always_ready else plan_route(scenario)
    step_times = list(_run_steps(scenario, route, steps, seed))
    warm_up = max(1, round(steps * WARM_UP))
    counted = step_times[warm_up:]
    return SimulatedRun(
        scenario,
        route,
        steps,
        step_seconds=(step_times[-1].ended - step_times[warm_up - 1].ended) / len(counted),
        compute_seconds=float(np.mean([step.computed - step.received for step in counted])),
        seconds=step_times[-1].ended,
    )


def _run_steps(scenario: Scenario, route: Route, steps: int, seed: int) -> Iterator[StepTimes]:
    training, ranks = scenario.training, scenario.gpus
    # The compute times have a random generator of their own, so that their jitter does not depend on the route.
    route_random, compute_random = (np.random.default_rng(part) for part in np.random.SeedSequence(seed).spawn(2))
    received, arrived, ended = list[Array](), list[Array](), np.zeros(ranks)
    for number in range(steps):
        slot_free_at = _times_of(received, number - scenario.slots, ranks)
        read_start = _times_of(received, number - scenario.slots - scenario.prefetched_batches, ranks)
        if scenario.maps.where == "remote":
            earlier_arrival = _times_of(arrived, number - scenario.batches_in_flight, ranks)
            read_start = slot_free_at = np.maximum(slot_free_at, earlier_arrival)
        arrived.append(route.pass_through(read_start, slot_free_at, route_random))
        received.append(np.maximum(arrived[-1], ended) + scenario.host.taking_seconds)
        factors = jitter_factors(compute_random, training.compute_jitter, ranks)
        computed = received[-1] + training.compute_seconds * factors
        step = StepTimes(received[-1], computed, float(computed.max()) + training.all_reduce_seconds)
        ended = np.full(ranks, step.ended)
        yield step


def _times_of(times: list[Array], number: int, ranks: int) -> Array:
    """Return the time of each rank in step `number`; 0 for steps before the first."""
    return times[number] if number >= 0 else np.zeros(ranks)
