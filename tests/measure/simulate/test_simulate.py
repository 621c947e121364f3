"""The simulation: step times with one slow part, and properties of all scenarios."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.measure.simulate.cases import documented_shares, even_scenarios, scenario

from forebay.errors import ScenarioError
from forebay.measure.simulate.outcome import with_doubled
from forebay.measure.simulate.route import jitter_factors
from forebay.measure.simulate.scenario import Maps, Remote, Store, Training
from forebay.measure.simulate.scenario_file import read_scenario
from forebay.measure.simulate.simulate import simulate

PARAMETERS = [
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


def test_without_waiting_a_step_takes_compute_plus_all_reduce():
    training = Training(batch_rows=100, compute_seconds=0.2, all_reduce_seconds=0.05)
    assert simulate(scenario(training=training)).step_seconds == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("setup", "seconds"),
    [
        (scenario(training=IDLE, link_bytes_per_second=1e9), 1e-3),
        (scenario(training=IDLE, gpus=4, memory_bytes_per_second=1e9), 4e-3),
        (scenario(training=IDLE, gpus=4, gpus_per_switch=2, switch_bytes_per_second=1e9), 2e-3),
        (scenario(training=IDLE, source="disk", gpus=2, disk_bytes_per_second=1e9), 2e-3),
        (scenario(training=IDLE, maps=Maps("host", 1e-4), workers=4), 2.5e-3),
        (scenario(training=IDLE, maps=Maps("host", 1e-4, 2e-3), workers=1, gpus=2), 24e-3),
    ],
    ids=["link", "memory", "switch", "disk", "workers", "one worker for two GPUs"],
)
def test_a_single_slow_part_determines_the_step(setup, seconds):
    assert simulate(setup).step_seconds == pytest.approx(seconds, rel=0.02)


def test_all_hosts_share_the_bandwidth_of_a_slow_store():
    setup = replace(scenario(hosts=5, training=IDLE, source="store"), store=Store(bytes_per_second=1e9))
    assert simulate(setup).step_seconds == pytest.approx(5e-3)


def test_connections_with_one_request_each_obey_littles_law():
    store = Store(connections=2, request_nbytes=1_000_000, connection_bytes_per_second=1e8, latency_seconds=0.01)
    setup = replace(scenario(training=IDLE, source="store"), store=store)
    assert simulate(setup).step_seconds == pytest.approx(0.01, rel=0.02)


def test_prefetching_hides_the_latency_of_a_store():
    setup = scenario(training=Training(100, 0.01, prefetch=2), source="store")
    slow = replace(setup, store=Store(latency_seconds=0.1, connections=1000, ahead_nbytes=0))
    ahead = replace(setup, store=replace(slow.store, ahead_nbytes=8_000_000))
    assert simulate(slow).step_seconds == pytest.approx(0.05, rel=0.02)
    assert simulate(ahead).step_seconds == pytest.approx(0.01, rel=0.02)


def test_all_ranks_share_slow_remote_workers():
    setup = scenario(hosts=2, training=IDLE, maps=Maps("remote", 1e-4))
    setup = replace(setup, remote=Remote(nodes=2, workers=5))
    assert simulate(setup).step_seconds == pytest.approx(2e-3, rel=0.02)


@pytest.mark.parametrize("nodes", [10, 100])
def test_more_remote_nodes_do_not_shorten_the_time_of_the_training_process_per_batch(nodes):
    setup = scenario(training=IDLE, maps=Maps("remote", 1e-4))
    setup = replace(setup, remote=Remote(nodes=nodes, workers=5, seconds_per_batch=4e-3))
    assert simulate(setup).step_seconds == pytest.approx(4e-3, rel=0.02)


def test_with_one_batch_in_flight_every_step_waits_for_the_whole_route():
    setup = scenario(training=IDLE, maps=Maps("remote", 1e-4), link_bytes_per_second=1e8)
    setup = replace(setup, remote=Remote(workers=8, in_flight=1))
    assert simulate(setup).step_seconds == pytest.approx(0.01 + 0.01)


def test_two_slots_hide_copies_behind_compute():
    setup = scenario(training=Training(100, 0.0011, prefetch=2), link_bytes_per_second=1e9)
    assert simulate(setup).step_seconds == pytest.approx(0.0011)


@given(even_scenarios(), st.sampled_from(PARAMETERS))
def test_doubling_the_capacity_of_any_part_never_makes_a_run_longer(setup, parameter):
    assert simulate(with_doubled(setup, parameter), steps=20).seconds <= simulate(setup, steps=20).seconds * (1 + 1e-9)


@given(even_scenarios())
def test_every_byte_passes_every_server_of_its_route_once(setup):
    run = simulate(setup, steps=12)
    passed = [stage.server.busy_seconds for stage in run.route.stages]
    assert passed == pytest.approx([12 * setup.gpus * stage.seconds for stage in run.route.stages])


@given(even_scenarios())
def test_no_step_is_shorter_than_its_slowest_part(setup):
    run = simulate(setup, steps=20)
    least = [stage.seconds * setup.gpus / stage.server.total_channels for stage in run.route.stages]
    assert run.step_seconds >= setup.training.compute_seconds * (1 - 1e-9)
    assert run.seconds >= 20 * max([0.0, *least]) * (1 - 1e-9)


def test_the_slowest_rank_determines_the_step():
    training = Training(batch_rows=100, compute_seconds=1.0, compute_jitter=0.1)
    run = simulate(scenario(hosts=50, training=training), steps=30, seed=7)
    random = np.random.default_rng(np.random.SeedSequence(7).spawn(2)[1])
    slowest = [jitter_factors(random, 0.1, 50).max() for _ in range(30)]
    assert run.step_seconds == pytest.approx(np.mean(slowest[10:]))


def test_more_ranks_wait_longer_for_the_slowest():
    training = Training(batch_rows=100, compute_seconds=1.0, compute_jitter=0.05)
    steps = [simulate(scenario(hosts=hosts, training=training)).step_seconds for hosts in (1, 10, 100)]
    assert steps == sorted(steps)
    assert steps[0] == pytest.approx(1.0, rel=0.02)


def test_the_same_seed_gives_the_same_result():
    training = Training(batch_rows=100, compute_seconds=0.01, compute_jitter=0.3)
    setup = scenario(hosts=3, training=training, maps=Maps("host", 1e-4, jitter=0.5))
    assert simulate(setup, seed=4).step_seconds == simulate(setup, seed=4).step_seconds
    assert simulate(setup, seed=4).step_seconds != simulate(setup, seed=5).step_seconds


def test_factors_of_jitter_have_the_mean_1_and_the_requested_deviation():
    drawn = jitter_factors(np.random.default_rng(0), 0.5, 200_000)
    assert drawn.mean() == pytest.approx(1.0, rel=0.01)
    assert drawn.std() == pytest.approx(0.5, rel=0.02)


@pytest.mark.parametrize(("name", "changes", "percent"), documented_shares())
def test_the_simulation_gives_the_documented_busy_shares(name, changes, percent):
    assert round(100 * simulate(read_scenario(name, changes)).busy_share) == percent


def test_the_documentation_states_at_least_ten_busy_shares():
    assert len(documented_shares()) >= 10


@pytest.mark.parametrize(("steps", "seed"), [(2, 0), (0, 0), (10, -1)])
def test_too_few_steps_and_bad_seeds_are_refused(steps, seed):
    with pytest.raises(ScenarioError, match=f"steps={steps} with seed={seed}"):
        simulate(scenario(), steps=steps, seed=seed)
