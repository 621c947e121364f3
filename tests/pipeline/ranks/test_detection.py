"""Rank detection: launchers that report, launchers that disagree, pipelines that use a rank."""

import json

import numpy as np
import pytest
from tests.pipeline.ranks.processes import RANK_VARIABLES

import forebay as fb
from forebay.errors import PipelineError
from forebay.pipeline.ranks import Rank, detect_rank

CLUSTER = {"chief": ["a:1"], "worker": ["b:1", "c:1"]}


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch):
    for name in RANK_VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def torchrun(monkeypatch):
    def launch(rank, count):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", str(count))

    return launch


@pytest.fixture
def tf_config(monkeypatch):
    def launch(kind, index, cluster=CLUSTER):
        monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}}))

    return launch


def numbers(rows=12):
    return fb.from_arrays(np.arange(rows))


def test_without_a_launcher_there_is_one_shard():
    assert detect_rank() == Rank(0, 1, "")
    feed = numbers().shard("auto").batch(5).feed("numpy")
    assert [len(batch) for batch in feed] == [5, 5, 2]
    assert "the only one" in feed.explain()


def test_torchrun_reports_its_rank_in_variables(torchrun):
    torchrun(1, 3)
    assert detect_rank() == Rank(1, 3, "RANK and WORLD_SIZE")


@pytest.mark.parametrize(("kind", "index", "rank"), [("chief", 0, 0), ("worker", 0, 1), ("worker", 1, 2)])
def test_a_chief_is_the_first_of_the_workers(tf_config, kind, index, rank):
    tf_config(kind, index)
    assert detect_rank() == Rank(rank, 3, "TF_CONFIG")


def test_an_evaluator_works_alone_also_under_slurm(monkeypatch, tf_config):
    tf_config("evaluator", 0)
    monkeypatch.setenv("SLURM_PROCID", "3")
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4")
    assert detect_rank() == Rank(0, 1, "TF_CONFIG")


def test_parameter_servers_are_refused(tf_config):
    tf_config("worker", 0, {"worker": ["a:1"], "ps": ["b:1"]})
    with pytest.raises(PipelineError, match="parameter servers"):
        detect_rank()


def test_two_launchers_that_agree_are_both_named(torchrun, tf_config):
    torchrun(2, 3)
    tf_config("worker", 1)
    assert detect_rank() == Rank(2, 3, "RANK and WORLD_SIZE and TF_CONFIG")


def test_two_launchers_that_disagree_are_refused_with_both_values(torchrun, tf_config):
    torchrun(2, 4)
    tf_config("worker", 1)
    with pytest.raises(PipelineError, match=r"2 of 4 by RANK and WORLD_SIZE, 2 of 3 by TF_CONFIG.*shard\(index"):
        detect_rank()


@pytest.mark.parametrize("config", ["{", "[]", '{"cluster": 3, "task": {"type": "worker"}}', '{"task": 1}'])
def test_the_error_shows_a_broken_tf_config(monkeypatch, config):
    monkeypatch.setenv("TF_CONFIG", config)
    with pytest.raises(PipelineError, match="TF_CONFIG="):
        detect_rank()


@pytest.mark.parametrize(("rank", "count"), [("x", "2"), ("2", "2"), ("-1", "2"), ("0", "0")])
def test_the_error_shows_an_impossible_rank(torchrun, rank, count):
    torchrun(rank, count)
    with pytest.raises(PipelineError, match=f"rank '?{rank}'? of '?{count}"):
        detect_rank()


def test_the_rank_is_detected_when_the_feed_starts(torchrun):
    pipeline = numbers().shard("auto").batch(2)
    torchrun(1, 2)
    assert np.concatenate(list(pipeline.feed("numpy"))).tolist() == [1, 3, 5, 7, 9, 11]


def test_sharding_by_rank_and_by_numbers_is_refused():
    with pytest.raises(PipelineError, match="sharded already"):
        numbers().shard("auto").shard(0, 2)


@pytest.mark.parametrize("arguments", [("automatic",), ("auto", 2), (1,)])
def test_an_incomplete_shard_is_refused_with_both_valid_forms(arguments):
    with pytest.raises(PipelineError, match=r"use shard\(index, count\), or shard\('auto'\) alone"):
        numbers().shard(*arguments)


def test_fewer_rows_than_ranks_are_refused(torchrun):
    torchrun(0, 20)
    with pytest.raises(PipelineError, match="8 ranks would have no row"):
        numbers().shard("auto").batch(4).feed("numpy")


def test_a_state_that_leaves_fewer_rows_than_ranks_is_refused(torchrun):
    feed = numbers(11).batch(10).feed("numpy")
    next(feed)
    torchrun(0, 2)
    ranked = numbers(11).shard("auto").batch(10).feed("numpy")
    with pytest.raises(PipelineError, match="1 rows from position 10 on cannot be divided among 2 ranks"):
        ranked.load_state_dict(feed.state_dict())


def test_the_same_state_is_accepted_if_the_remainder_is_dropped(torchrun):
    feed = numbers(11).batch(10).feed("numpy")
    next(feed)
    torchrun(0, 2)
    ranked = numbers(11).shard("auto").batch(2, drop_remainder=True).feed("numpy")
    ranked.load_state_dict(feed.state_dict())
    assert list(ranked) == []


def test_a_stream_over_ranks_must_drop_its_remainder(torchrun):
    torchrun(0, 2)
    stream = fb.from_generator(lambda: iter(np.arange(9))).shard("auto")
    with pytest.raises(PipelineError, match="drop_remainder=True"):
        stream.batch(2).feed("numpy")
    assert [batch.tolist() for batch in stream.batch(2, drop_remainder=True).feed("numpy")] == [[0, 2], [4, 6]]


def test_ready_made_batches_cannot_be_sharded_by_rank(torchrun):
    torchrun(0, 2)
    with pytest.raises(PipelineError, match="ready-made batches"):
        fb.from_batches([np.arange(3)]).shard("auto").feed("numpy")
