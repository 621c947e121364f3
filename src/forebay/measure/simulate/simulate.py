"""Steps of all ranks: batches set out as slots become free, GPUs compute, and everybody waits for the slowest.

A batch may be made when the training loop takes the one that is as many before it as there are slots, and may be read
from a store somewhat earlier. That is the whole of back-pressure: nothing is made that has no place to go to.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from forebay.core.spec import Array
from forebay.errors import ScenarioError
from forebay.measure.simulate.route import Way, lay_out, spread
from forebay.measure.simulate.scenario import Scenario

__all__ = ["Run", "Step", "simulate", "usual_steps"]

FEWEST_STEPS, MOST_STEPS = 300, 1500
WINDOWS = 10  # as many steps as are under way at a time, so often: one late answer must not decide it all
WARM_UP = 1 / 3  # of the steps: slots that were all free at first are used up


@dataclass(frozen=True, slots=True)
class Step:
    """When each rank had its batch and computed, and when all were done."""

    began: Array
    computed: Array
    ended: float


@dataclass(frozen=True, slots=True)
class Run:
    """Steps once they have become even."""

    scenario: Scenario
    way: Way
    steps: int
    step_seconds: float
    computing_seconds: float  # of a step and a GPU, in the mean
    seconds: float  # of all steps

    @property
    def busy_share(self) -> float:
        """Of the GPUs' time, what they compute; the rest they wait for batches or for each other."""
        return self.computing_seconds / self.step_seconds if self.step_seconds else 0.0

    @property
    def steps_an_epoch(self) -> float:
        return self.scenario.data.rows / (self.scenario.training.batch_rows * self.scenario.gpus)


def usual_steps(scenario: Scenario) -> int:
    """As many as it takes for them to become even."""
    return min(MOST_STEPS, max(FEWEST_STEPS, WINDOWS * (scenario.slots + scenario.ahead)))


def simulate(scenario: Scenario, *, steps: int | None = None, seed: int = 0, fed: bool = True) -> Run:
    """Run the scenario for so many steps; unfed, on batches that are always there."""
    steps = usual_steps(scenario) if steps is None else steps
    if steps < 3 or seed < 0:
        raise ScenarioError(f"steps={steps} with seed={seed}: give 3 steps or more, and a seed that is not negative.")
    way = lay_out(scenario) if fed else Way((), ())
    done = list(_steps(scenario, way, steps, seed))
    warm = max(1, round(steps * WARM_UP))
    counted = done[warm:]
    return Run(
        scenario,
        way,
        steps,
        step_seconds=(done[-1].ended - done[warm - 1].ended) / len(counted),
        computing_seconds=float(np.mean([step.computed - step.began for step in counted])),
        seconds=done[-1].ended,
    )


def _steps(scenario: Scenario, way: Way, steps: int, seed: int) -> Iterator[Step]:
    training, ranks = scenario.training, scenario.gpus
    # Two of them, so that GPUs are as uneven however they are fed.
    on_the_way, computing = (np.random.default_rng(part) for part in np.random.SeedSequence(seed).spawn(2))
    began, arrived, ended = list[Array](), list[Array](), np.zeros(ranks)
    for number in range(steps):
        may_go_on = _since(began, number - scenario.slots, ranks)
        may_read = _since(began, number - scenario.slots - scenario.ahead, ranks)
        if scenario.maps.where == "remote":  # few enough are out
            may_read = may_go_on = np.maximum(may_go_on, _since(arrived, number - scenario.in_flight, ranks))
        arrived.append(way.pass_through(may_read, may_go_on, on_the_way))
        began.append(np.maximum(arrived[-1], ended) + scenario.host.taking_seconds)
        computed = began[-1] + training.compute_seconds * spread(computing, training.compute_jitter, ranks)
        step = Step(began[-1], computed, float(computed.max()) + training.all_reduce_seconds)
        ended = np.full(ranks, step.ended)
        yield step


def _since(times: list[Array], number: int, ranks: int) -> Array:
    """When that step had come so far; those before the first, always."""
    return times[number] if number >= 0 else np.zeros(ranks)
