"""Training steps of all ranks: batches travel as slots become free, and every step waits for the slowest GPU.

A batch may be made when the training loop takes the batch that is as many positions earlier as there are slots. It may
be read from a store somewhat earlier. This is all the back-pressure: nothing is made without a free slot.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from forebay.core.spec import Array
from forebay.errors import ScenarioError
from forebay.measure.simulate.route import Route, jitter_factors, plan_route
from forebay.measure.simulate.scenario import Scenario

__all__ = ["WARM_UP", "SimulatedRun", "StepTimes", "default_steps", "simulate"]

MIN_STEPS, MAX_STEPS = 300, 1500
WINDOWS = 10  # times the number of batches that travel at the same time, so that one late reply does not decide
WARM_UP = 1 / 3  # of the steps: at the start all slots are free, and these batches must be used up first


@dataclass(frozen=True, slots=True)
class StepTimes:
    """When each rank received its batch, when it had computed, and when the step ended."""

    received: Array
    computed: Array
    ended: float


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """The mean of the steps after the warm-up."""

    scenario: Scenario
    route: Route
    steps: int
    step_seconds: float
    compute_seconds: float  # per step and GPU
    seconds: float  # of all steps

    @property
    def busy_share(self) -> float:
        """Return the share of time in which GPUs compute. Else they wait for batches or for other GPUs."""
        return self.compute_seconds / self.step_seconds if self.step_seconds else 0.0

    @property
    def steps_per_epoch(self) -> float:
        return self.scenario.data.rows / (self.scenario.training.batch_rows * self.scenario.gpus)


def default_steps(scenario: Scenario) -> int:
    """Return how many steps it takes until their time is steady."""
    return min(MAX_STEPS, max(MIN_STEPS, WINDOWS * (scenario.slots + scenario.prefetched_batches)))


def simulate(scenario: Scenario, *, steps: int | None = None, seed: int = 0, fed: bool = True) -> SimulatedRun:
    """Run the scenario for some steps; with `fed=False`, all batches are always ready."""
    steps = default_steps(scenario) if steps is None else steps
    if steps < 3 or seed < 0:
        raise ScenarioError(f"steps={steps} with seed={seed} is not possible. Give at least 3 steps and a seed >= 0.")
    route = plan_route(scenario) if fed else Route((), ())
    done = list(_run_steps(scenario, route, steps, seed))
    warm_up = max(1, round(steps * WARM_UP))
    counted = done[warm_up:]
    return SimulatedRun(
        scenario,
        route,
        steps,
        step_seconds=(done[-1].ended - done[warm_up - 1].ended) / len(counted),
        compute_seconds=float(np.mean([step.computed - step.received for step in counted])),
        seconds=done[-1].ended,
    )


def _run_steps(scenario: Scenario, route: Route, steps: int, seed: int) -> Iterator[StepTimes]:
    training, ranks = scenario.training, scenario.gpus
    # Two generators, so that the jitter of the GPUs does not depend on the route.
    route_random, compute_random = (np.random.default_rng(part) for part in np.random.SeedSequence(seed).spawn(2))
    received, arrived, ended = list[Array](), list[Array](), np.zeros(ranks)
    for number in range(steps):
        slot_from = _times_of(received, number - scenario.slots, ranks)
        read_from = _times_of(received, number - scenario.slots - scenario.prefetched_batches, ranks)
        if scenario.maps.where == "remote":  # wait until fewer batches are in flight than allowed
            in_flight_until = _times_of(arrived, number - scenario.batches_in_flight, ranks)
            read_from = slot_from = np.maximum(slot_from, in_flight_until)
        arrived.append(route.pass_through(read_from, slot_from, route_random))
        received.append(np.maximum(arrived[-1], ended) + scenario.host.taking_seconds)
        factors = jitter_factors(compute_random, training.compute_jitter, ranks)
        computed = received[-1] + training.compute_seconds * factors
        step = StepTimes(received[-1], computed, float(computed.max()) + training.all_reduce_seconds)
        ended = np.full(ranks, step.ended)
        yield step


def _times_of(times: list[Array], number: int, ranks: int) -> Array:
    """Return the times of a step; zero for steps before the first one."""
    return times[number] if number >= 0 else np.zeros(ranks)
