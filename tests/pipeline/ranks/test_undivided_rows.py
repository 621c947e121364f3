"""Launchers inside of launchers, and pipelines without `shard` on one of several ranks."""

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from tests.pipeline.ranks.processes import LAUNCHER_VARIABLES, RANK_VARIABLES

import forebay as fb
from forebay.errors import PipelineError
from forebay.pipeline.ranks import Rank, detect_rank

MODULES = ("torch.distributed", "jax._src.distributed", "ray.train", "tensorflow")
WORKER_0_OF_2 = {"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}}


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch):
    for name in RANK_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name in MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.fixture
def launch(monkeypatch):
    """Set the variables of launchers by name, such as `launch(srun=(0, 2), torchrun=(3, 8))`."""

    def set_variables(**ranks):
        for launcher, rank in ranks.items():
            for name, value in zip(LAUNCHER_VARIABLES[launcher], rank, strict=True):
                monkeypatch.setenv(name, str(value))

    return set_variables


@pytest.fixture
def join(monkeypatch):
    """Make a framework report a rank, as if the process had joined the other ranks."""

    def report(framework, index, count):
        if framework == "torch":
            module = SimpleNamespace(
                is_available=lambda: True,
                is_initialized=lambda: True,
                get_rank=lambda: index,
                get_world_size=lambda: count,
            )
            monkeypatch.setitem(sys.modules, "torch.distributed", module)
        elif framework == "jax":
            state = SimpleNamespace(client=object(), process_id=index, num_processes=count)
            monkeypatch.setitem(sys.modules, "jax._src.distributed", SimpleNamespace(global_state=state))
        else:
            context = SimpleNamespace(
                get_experiment_name=lambda: "run", get_world_rank=lambda: index, get_world_size=lambda: count
            )
            monkeypatch.setitem(sys.modules, "ray.train", SimpleNamespace(get_context=lambda: context))

    return report


def ten_rows():
    return fb.from_arrays(np.arange(10)).batch(3)


# The innermost launcher decides


@pytest.mark.parametrize("launcher", LAUNCHER_VARIABLES)
def test_each_launcher_alone_reports_its_rank(launch, launcher):
    launch(**{launcher: (2, 5)})
    assert detect_rank() == Rank(2, 5, " and ".join(LAUNCHER_VARIABLES[launcher]))


@pytest.mark.parametrize("outer", ["srun", "mpirun", "mpiexec"])
def test_torchrun_on_each_node_decides_over_the_launcher_of_the_nodes(launch, outer):
    launch(**{outer: (0, 2), "torchrun": (3, 8)})
    assert detect_rank() == Rank(3, 8, "RANK and WORLD_SIZE")


def test_mpirun_inside_a_slurm_step_decides(launch):
    launch(srun=(0, 2), mpirun=(5, 8))
    assert detect_rank() == Rank(5, 8, "OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE")


def test_jax_decides_over_the_slurm_step_that_started_it(launch, join):
    launch(srun=(1, 4))
    join("jax", 3, 4)
    assert detect_rank() == Rank(3, 4, "jax.distributed")


def test_torch_decides_over_its_variables(launch, join):
    launch(torchrun=(0, 8))
    join("torch", 0, 1)
    assert detect_rank() == Rank(0, 1, "torch.distributed")


def test_ray_train_and_torch_on_a_slurm_cluster_are_named_together(launch, join):
    launch(srun=(1, 2))
    join("ray", 2, 4)
    join("torch", 2, 4)
    assert detect_rank() == Rank(2, 4, "Ray Train and torch.distributed")


def test_two_frameworks_that_disagree_are_refused_with_both_values(join):
    join("torch", 1, 2)
    join("jax", 0, 2)
    with pytest.raises(PipelineError, match=r"1 of 2 by torch.distributed, 0 of 2 by jax.distributed"):
        detect_rank()


# Processes that are no rank


def test_a_batch_script_outside_of_a_step_is_one_process(monkeypatch):
    monkeypatch.setenv("SLURM_PROCID", "0")
    monkeypatch.setenv("SLURM_NTASKS", "4")
    assert detect_rank() == Rank(0, 1, "")
    assert len(list(ten_rows().feed("numpy"))) == 4


@pytest.mark.parametrize("name", ["bash", "interactive"])
def test_an_interactive_session_of_slurm_is_one_process(launch, monkeypatch, name):
    launch(srun=(0, 4))
    monkeypatch.setenv("SLURM_JOB_NAME", name)
    monkeypatch.setenv("SLURM_PTY_PORT", "4001")  # `srun --pty` sets this variable
    assert detect_rank() == Rank(0, 1, "")
    assert len(list(ten_rows().feed("numpy"))) == 4
    assert len(list(ten_rows().shard("auto").feed("numpy"))) == 4


def test_tasks_that_srun_starts_in_an_allocation_are_ranks(launch, monkeypatch):
    """`salloc` gives its job the name "interactive"; the tasks of `srun` inherit it."""
    launch(srun=(2, 4))
    monkeypatch.setenv("SLURM_JOB_NAME", "interactive")
    assert (detect_rank().index, detect_rank().count) == (2, 4)


# Ranks that begin after `feed()`


@pytest.mark.parametrize("framework", ["torch", "jax", "ray"])
def test_a_feed_without_shard_finds_ranks_that_begin_later(join, framework):
    with ten_rows().feed("numpy") as feed:
        join(framework, 1, 2)
        with pytest.raises(PipelineError, match=r"rank 1 of 2.*no shard\(\)"):
            next(feed)


def test_a_feed_with_shard_auto_finds_ranks_that_begin_later(join):
    with ten_rows().shard("auto").feed("numpy") as feed:
        join("torch", 1, 2)
        with pytest.raises(
            PipelineError, match=r"is rank 1 of 2 .*was rank 0 of 1 when feed\(\) ran.*feed\('loader'\)"
        ):
            next(feed)


def test_a_feed_of_divided_rows_ignores_ranks_that_begin_later(join):
    with ten_rows().shard(0, 1).feed("numpy") as feed:
        join("torch", 1, 2)
        assert len(list(feed)) == 4


def test_a_feed_looks_for_ranks_once(join):
    with ten_rows().feed("numpy") as feed:
        assert len(list(feed)) == 4
        join("torch", 1, 2)
        assert len(list(feed)) == 4


def test_an_impossible_rank_is_not_in_the_statistics(launch):
    launch(torchrun=(3, 2))
    with ten_rows().shard(0, 1).feed("numpy") as feed:
        assert feed.stats()["rank"] == 0


def test_a_ray_worker_on_a_slurm_cluster_is_no_task_of_the_step(launch, monkeypatch):
    launch(srun=(1, 4))
    monkeypatch.setenv("RAY_RAYLET_PID", "12")
    assert detect_rank() == Rank(0, 1, "")
    assert len(list(ten_rows().feed("numpy"))) == 4


@pytest.mark.parametrize("rank", [(0, 1), ("x", 2), (5, 2), (0, "many")])
def test_a_single_process_and_invalid_reports_do_not_refuse_a_pipeline_without_shard(launch, rank):
    launch(torchrun=rank)
    assert len(list(ten_rows().feed("numpy"))) == 4


def test_workers_with_parameter_servers_need_no_shard(monkeypatch):
    cluster = WORKER_0_OF_2["cluster"] | {"ps": ["c:1"]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": WORKER_0_OF_2["task"]}))
    assert len(list(ten_rows().feed("numpy"))) == 4


def test_with_a_half_imported_framework_no_pipeline_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.distributed", SimpleNamespace())
    assert len(list(ten_rows().feed("numpy"))) == 4


# Several ranks without shard


PIPELINES = {
    "rows": ten_rows,
    "stream": lambda: fb.from_generator(lambda: iter(np.arange(10))).batch(3),
    "batches": lambda: fb.from_batches([np.arange(3)]),
}


@pytest.mark.parametrize("launcher", LAUNCHER_VARIABLES)
@pytest.mark.parametrize("kind", PIPELINES)
def test_several_ranks_without_shard_are_refused_with_both_alternatives(launch, launcher, kind):
    pipeline = PIPELINES[kind]()
    launch(**{launcher: (1, 2)})
    with pytest.raises(PipelineError, match=r"rank 1 of 2.*no shard.*\.shard\('auto'\).*\.shard\(0, 1\)"):
        pipeline.feed("numpy")


@pytest.mark.parametrize("framework", ["torch", "jax", "ray"])
def test_ranks_that_a_framework_reports_are_refused_without_shard(join, framework):
    join(framework, 0, 2)
    with pytest.raises(PipelineError, match="rank 0 of 2"):
        ten_rows().feed("numpy")


def test_tf_config_with_two_workers_is_refused_without_shard(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", json.dumps(WORKER_0_OF_2))
    with pytest.raises(PipelineError, match=r"rank 0 of 2 \(reported by TF_CONFIG\)"):
        ten_rows().feed("numpy")


@pytest.mark.parametrize("kind", PIPELINES)
def test_shard_0_of_1_says_that_the_rows_are_divided_already(launch, kind):
    launch(torchrun=(1, 2))
    with PIPELINES[kind]().shard(0, 1).feed("numpy") as feed:
        rows = [row for batch in feed for row in batch.tolist()]
        assert rows == list(range(3 if kind == "batches" else 10))
        assert "shard(0, 1) says that the rows are already divided" in feed.explain()
        assert "RANK and WORLD_SIZE reports rank 1 of 2" in feed.explain()


def test_shard_0_of_1_does_not_change_the_fingerprint():
    assert ten_rows().shard(0, 1).fingerprint == ten_rows().fingerprint


def test_the_description_of_a_pipeline_needs_no_rank(launch):
    launch(torchrun=(1, 2))
    rows = fb.from_arrays(np.arange(10))
    assert fb.concat(rows, rows.shuffle(seed=1)).take(4).batch(2).schedule.batches == 2


def test_explain_does_not_mention_ranks_in_a_single_process():
    with ten_rows().shard(0, 1).feed("numpy") as feed:
        assert "already divided" not in feed.explain()
