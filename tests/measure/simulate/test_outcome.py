"""The outcome of a scenario: bottleneck, gain of doubling it, lost GPU hours."""

from dataclasses import replace

import pytest
from tests.measure.simulate.cases import scenario

from forebay.measure.simulate.outcome import assess, with_doubled
from forebay.measure.simulate.scenario import Maps, Store, Training


def test_gpus_are_the_bottleneck_if_batches_are_ready():
    outcome = assess(scenario(link_bytes_per_second=1e9), steps=60)
    assert outcome.bottleneck.name == "GPUs"
    assert outcome.run.busy_share == pytest.approx(1.0)
    assert outcome.gpu_hours_lost_to_feeding == 0.0


def test_a_slow_disk_is_the_bottleneck_and_doubling_it_halves_the_step():
    outcome = assess(scenario(source="disk", disk_bytes_per_second=2e7), steps=60)
    assert outcome.bottleneck.name == "disk"
    assert outcome.bottleneck.busy_share == pytest.approx(1.0)
    assert outcome.doubled_seconds[outcome.bottleneck.parameter] == pytest.approx(outcome.run.step_seconds / 2)
    assert outcome.bottleneck.needed == pytest.approx(1e8)


def test_too_few_slots_are_the_bottleneck_if_nothing_is_busy():
    store = Store(latency_seconds=0.05, connections=1000, ahead_nbytes=0)
    outcome = assess(replace(scenario(source="store", training=Training(100, 0.01, prefetch=2)), store=store), steps=60)
    assert outcome.bottleneck.name == "slots"


def test_workers_needed_are_those_that_keep_gpus_busy():
    outcome = assess(scenario(gpus=2, workers=4, maps=Maps("host", 1e-3)), steps=60)
    workers = next(part for part in outcome.parts if part.name == "workers")
    assert workers.needed == pytest.approx(20)
    enough = scenario(gpus=2, workers=20, maps=Maps("host", 1e-3))
    assert assess(enough, steps=60).full_speed_share == pytest.approx(1.0)


def test_lost_hours_and_compute_hours_add_up_to_the_epoch():
    training = Training(100, 0.01, compute_jitter=0.1, all_reduce_seconds=0.002)
    outcome = assess(scenario(hosts=4, training=training, source="disk", disk_bytes_per_second=5e7), steps=60)
    lost = outcome.gpu_hours_lost_to_feeding + outcome.gpu_hours_lost_to_each_other
    assert outcome.gpu_hours - lost == pytest.approx(
        outcome.gpu_hours * outcome.full_speed_share * outcome.always_ready.busy_share
    )
    assert outcome.run.steps_per_epoch == 2500
    assert outcome.gpu_hours == pytest.approx(4 * 2500 * outcome.run.step_seconds / 3600)


def test_doubling_the_slots_doubles_the_batches_in_flight():
    wider = with_doubled(scenario(maps=Maps("remote", 1e-4)), "training.prefetch")
    assert (wider.slots, wider.batches_in_flight) == (12, 4)
