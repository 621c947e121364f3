"""Ranks in processes, as frameworks start them, take the same steps."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.pipeline.ranks.processes import LAUNCHER_VARIABLES, ROWS, all_rows, environment, run_ranks, step_counts

LAUNCHED = Path(__file__).with_name("launched.py")
REPORTED_BY = {
    "torch": ("torch.distributed", "torch.distributed"),
    "jax": ("jax.distributed", "jax.distributed"),
    "tensorflow": ("TF_CONFIG", "TensorFlow's strategy"),
}


@pytest.mark.parametrize(("framework", "reported_by"), REPORTED_BY.items())
def test_ranks_share_an_epoch_and_take_the_same_steps(framework, reported_by, tmp_path):
    ranks = run_ranks(framework, 2, tmp_path)
    assert all_rows(ranks) == list(range(ROWS))
    assert step_counts(ranks) == {13}
    assert {count for rank in ranks for count in rank["present_ranks"]} == {2}
    assert ["1 of 2" in rank["explain"] for rank in ranks] == [False, True]
    assert all(f"reported by {reported_by[0]};" in rank["explain"] for rank in ranks)
    assert {rank["reported_in_scope"] for rank in ranks} == {reported_by[1]}


def test_an_epoch_resumes_on_four_then_three_then_two_ranks(tmp_path):
    folders = [tmp_path / name for name in "abc"]
    for folder in folders:
        folder.mkdir()
    four = run_ranks("numpy", 4, folders[0], steps=2)
    three = run_ranks("numpy", 3, folders[1], steps=3, state=four[3]["state"])
    two = run_ranks("numpy", 2, folders[2], state=three[1]["state"])
    assert all_rows([*four, *three, *two]) == list(range(ROWS))
    assert [step_counts(part) for part in (four, three, two)] == [{2}, {3}, {5}]
    assert all(rank["state"] == four[0]["state"] for rank in four)
    assert all(rank["state"] == three[0]["state"] for rank in three)


def test_a_rank_continues_when_another_dies(tmp_path):
    survivor, dead = run_ranks("numpy", 2, tmp_path, dies=[1, 3], exits=[0, 7])
    assert [len(survivor["batches"]), len(dead["batches"])] == [13, 3]


@pytest.mark.parametrize("launcher", ["mpirun", "mpiexec", "srun"])
def test_ranks_of_mpi_and_slurm_share_an_epoch_and_take_the_same_steps(launcher, tmp_path):
    ranks = run_ranks("numpy", 3, tmp_path, launcher=launcher)
    assert all_rows(ranks) == list(range(ROWS))
    assert step_counts(ranks) == {9}
    assert all(f"reported by {LAUNCHER_VARIABLES[launcher][0]}" in rank["explain"] for rank in ranks)


@pytest.mark.parametrize("rows", [13, 14, 100])
def test_uneven_rows_give_every_rank_the_same_steps(rows, tmp_path):
    ranks = run_ranks("numpy", 3, tmp_path, rows=rows)
    assert all_rows(ranks) == list(range(rows))
    assert len(step_counts(ranks)) == 1


def test_after_a_rank_was_killed_fewer_ranks_finish_the_epoch(tmp_path):
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
    three = run_ranks("numpy", 3, folders[0], killed=[1, 4], exits=[3, -signal.SIGKILL, 3])
    two = run_ranks("numpy", 2, folders[1], state=three[0]["state"])
    assert [step_counts(part) for part in (three, two)] == [{3}, {9}]
    assert all_rows([*three, *two]) == list(range(ROWS))


def test_ranks_without_shard_are_refused_on_every_rank(tmp_path):
    script = "import forebay as fb; fb.from_arrays([1, 2]).batch(1).feed('numpy')"
    for rank in range(2):
        settings = environment() | {"RANK": str(rank), "WORLD_SIZE": "2"}
        done = subprocess.run([sys.executable, "-c", script], env=settings, capture_output=True, text=True, timeout=500)
        assert f"PipelineError: this process is rank {rank} of 2" in done.stderr


def test_ranks_of_torchrun_are_detected_without_a_framework(tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(LAUNCHED)]
    done = subprocess.run([*command, str(tmp_path)], env=environment(), capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    records = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    assert sorted(records[0]["rows"] + records[1]["rows"]) == list(range(10))
    assert [rank["frameworks"] for rank in records] == [[], []]
