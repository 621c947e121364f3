"""Laws of the simulator: what a single part alone must give, and what no change may bring about."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.measure.simulate.cases import documented, even_scenarios, scenario

from forebay.errors import ScenarioError
from forebay.measure.simulate.outcome import widened
from forebay.measure.simulate.route import spread
from forebay.measure.simulate.scenario import Maps, Remote, Store, Training
from forebay.measure.simulate.scenario_file import read_scenario
from forebay.measure.simulate.simulate import simulate

KNOBS = [
    "training.compute_seconds",
    "training.prefetch",
    "host.link_bytes_per_second",
    "host.switch_bytes_per_second",
    "host.memory_bytes_per_second",
    "host.disk_bytes_per_second",
    "host.network_bytes_per_second",
    "host.workers",
    "store.bytes_per_second",
    "store.connections",
    "remote.nodes",
    "remote.network_bytes_per_second",
]
IDLE = Training(batch_rows=100, compute_seconds=0.0)


def test_a_loop_that_never_waits_takes_its_compute_and_its_all_reduce():
    training = Training(batch_rows=100, compute_seconds=0.2, all_reduce_seconds=0.05)
    assert simulate(scenario(training=training)).step_seconds == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("made", "seconds"),
    [
        (scenario(training=IDLE, link_bytes_per_second=1e9), 1e-3),
        (scenario(training=IDLE, gpus=4, memory_bytes_per_second=1e9), 4e-3),
        (scenario(training=IDLE, gpus=4, gpus_per_switch=2, switch_bytes_per_second=1e9), 2e-3),
        (scenario(training=IDLE, source="disk", gpus=2, disk_bytes_per_second=1e9), 2e-3),
        (scenario(training=IDLE, maps=Maps("host", 1e-4), workers=4), 2.5e-3),
        (scenario(training=IDLE, maps=Maps("host", 1e-4, 2e-3), workers=1, gpus=2), 24e-3),
    ],
    ids=["link", "memory", "switch", "disk", "workers", "one worker for two"],
)
def test_a_single_part_alone_sets_the_pace_by_its_speed(made, seconds):
    assert simulate(made).step_seconds == pytest.approx(seconds, rel=0.02)


def test_a_store_alone_is_shared_by_all_hosts():
    made = replace(scenario(hosts=5, training=IDLE, source="store"), store=Store(bytes_per_second=1e9))
    assert simulate(made).step_seconds == pytest.approx(5e-3)


def test_connections_that_wait_for_each_request_give_what_little_says():
    store = Store(connections=2, request_nbytes=1_000_000, connection_bytes_per_second=1e8, latency_seconds=0.01)
    made = replace(scenario(training=IDLE, source="store"), store=store)
    assert simulate(made).step_seconds == pytest.approx(0.01, rel=0.02)


def test_reading_ahead_hides_what_a_store_is_long_in_answering():
    made = scenario(training=Training(100, 0.01, prefetch=2), source="store")
    slow = replace(made, store=Store(latency_seconds=0.1, connections=1000, ahead_nbytes=0))
    ahead = replace(made, store=replace(slow.store, ahead_nbytes=8_000_000))
    assert simulate(slow).step_seconds == pytest.approx(0.05, rel=0.02)
    assert simulate(ahead).step_seconds == pytest.approx(0.01, rel=0.02)


def test_remote_workers_alone_are_shared_by_all_ranks():
    made = scenario(hosts=2, training=IDLE, maps=Maps("remote", 1e-4))
    made = replace(made, remote=Remote(nodes=2, workers=5))
    assert simulate(made).step_seconds == pytest.approx(2e-3, rel=0.02)


@pytest.mark.parametrize("nodes", [10, 100])
def test_what_the_trainer_does_for_a_batch_takes_as_long_with_any_number_of_nodes(nodes):
    made = scenario(training=IDLE, maps=Maps("remote", 1e-4))
    made = replace(made, remote=Remote(nodes=nodes, workers=5, seconds_per_batch=4e-3))
    assert simulate(made).step_seconds == pytest.approx(4e-3, rel=0.02)


def test_one_batch_in_flight_makes_every_step_wait_for_the_whole_way():
    made = scenario(training=IDLE, maps=Maps("remote", 1e-4), link_bytes_per_second=1e8)
    made = replace(made, remote=Remote(workers=8, in_flight=1))
    assert simulate(made).step_seconds == pytest.approx(0.01 + 0.01)


def test_copies_hide_behind_computing_where_there_are_two_slots():
    made = scenario(training=Training(100, 0.0011, prefetch=2), link_bytes_per_second=1e9)
    assert simulate(made).step_seconds == pytest.approx(0.0011)


@settings(deadline=None)
@given(even_scenarios(), st.sampled_from(KNOBS))
def test_more_of_anything_never_ends_later(made, knob):
    assert simulate(widened(made, knob), steps=20).seconds <= simulate(made, steps=20).seconds * (1 + 1e-9)


@settings(deadline=None)
@given(even_scenarios())
def test_every_byte_passes_every_station_of_its_way_once(made):
    run = simulate(made, steps=12)
    passed = [stage.station.busy_seconds for stage in run.way.stages]
    assert passed == pytest.approx([12 * made.gpus * stage.seconds for stage in run.way.stages])


@settings(deadline=None)
@given(even_scenarios())
def test_no_step_is_shorter_than_its_slowest_part(made):
    run = simulate(made, steps=20)
    least = [stage.seconds * made.gpus / stage.station.all_servers for stage in run.way.stages]
    assert run.step_seconds >= made.training.compute_seconds * (1 - 1e-9)
    assert run.seconds >= 20 * max([0.0, *least]) * (1 - 1e-9)


def test_the_slowest_rank_sets_the_pace():
    training = Training(batch_rows=100, compute_seconds=1.0, compute_jitter=0.1)
    run = simulate(scenario(hosts=50, training=training), steps=30, seed=7)
    random = np.random.default_rng(np.random.SeedSequence(7).spawn(2)[1])
    slowest = [spread(random, 0.1, 50).max() for _ in range(30)]
    assert run.step_seconds == pytest.approx(np.mean(slowest[10:]))


def test_more_ranks_wait_longer_for_the_slowest():
    training = Training(batch_rows=100, compute_seconds=1.0, compute_jitter=0.05)
    steps = [simulate(scenario(hosts=hosts, training=training)).step_seconds for hosts in (1, 10, 100)]
    assert steps == sorted(steps)
    assert steps[0] == pytest.approx(1.0, rel=0.02)


def test_chance_is_the_same_for_the_same_seed():
    training = Training(batch_rows=100, compute_seconds=0.01, compute_jitter=0.3)
    made = scenario(hosts=3, training=training, maps=Maps("host", 1e-4, jitter=0.5))
    assert simulate(made, seed=4).step_seconds == simulate(made, seed=4).step_seconds
    assert simulate(made, seed=4).step_seconds != simulate(made, seed=5).step_seconds


def test_uneven_times_keep_their_mean_and_spread():
    drawn = spread(np.random.default_rng(0), 0.5, 200_000)
    assert drawn.mean() == pytest.approx(1.0, rel=0.01)
    assert drawn.std() == pytest.approx(0.5, rel=0.02)


@pytest.mark.parametrize(("name", "changes", "percent"), documented())
def test_what_the_documentation_says_of_one_host_is_what_is_simulated(name, changes, percent):
    assert round(100 * simulate(read_scenario(name, changes)).busy_share) == percent


def test_the_documentation_says_something_of_one_host():
    assert len(documented()) >= 10


@pytest.mark.parametrize(("steps", "seed"), [(2, 0), (0, 0), (10, -1)])
def test_too_few_steps_and_bad_seeds_are_refused(steps, seed):
    with pytest.raises(ScenarioError, match=f"steps={steps} with seed={seed}"):
        simulate(scenario(), steps=steps, seed=seed)
