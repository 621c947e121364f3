"""Batches from Ray workers equal those from threads, bit by bit."""

import json
import os

import numpy as np
import pytest
from tests.transforms.workers.on_ray.conftest import assert_same, copy_batches
from tests.transforms.workers.on_ray.maps import (
    ROWS,
    append_itself,
    blur,
    narrow,
    negate,
    refuse_300,
    repeat_number,
    rows,
)

import forebay as fb

pytestmark = pytest.mark.usefixtures("cluster")


def add_maps(pipeline, where):
    return pipeline.shuffle(seed=5).map(blur, where=where).batch(32).map(narrow, where=where)


@pytest.fixture
def files(tmp_path):
    for part in range(4):
        whole = rows()
        cut = slice(part * ROWS // 4, (part + 1) * ROWS // 4)
        np.savez(tmp_path / f"part{part}.npz", x=whole["x"][cut], number=whole["number"][cut])
    return tmp_path / "*.npz"


def test_arrays_equal_those_of_threads_in_two_epochs():
    with (
        add_maps(fb.from_arrays(rows()), "thread").feed() as in_threads,
        add_maps(fb.from_arrays(rows()), "ray").feed() as on_ray,
    ):
        assert_same(copy_batches(on_ray), copy_batches(in_threads))
        assert_same(copy_batches(on_ray), copy_batches(in_threads))
    assert "rows             stored" in on_ray.explain()


def test_ray_workers_get_changes_of_arrays_between_epochs():
    changing = rows()
    with fb.from_arrays(changing).batch(32).map(narrow, where="ray").feed() as on_ray:
        before = copy_batches(on_ray)
        changing["x"] += 7.0
        after = copy_batches(on_ray)
    assert np.array_equal(after[0]["x"], before[0]["x"] + 7.0)


def test_files_are_read_on_the_workers(files):
    with (
        add_maps(fb.from_files(files), "thread").feed() as in_threads,
        add_maps(fb.from_files(files), "ray").feed() as on_ray,
    ):
        assert_same(copy_batches(on_ray), copy_batches(in_threads))
    assert "each worker opens the files itself" in on_ray.explain()
    assert "gather" not in on_ray.stats()["stages"]


def test_workers_find_files_given_by_relative_paths(files, monkeypatch):
    monkeypatch.chdir(files.parent)
    with (
        add_maps(fb.from_files("*.npz"), "ray").feed() as on_ray,
        add_maps(fb.from_files(files), "thread").feed() as in_threads,
    ):
        assert_same(copy_batches(on_ray), copy_batches(in_threads))


def test_rows_of_files_that_a_worker_cannot_see_are_sent_to_it(files):
    folder = os.open(files.parent, os.O_DIRECTORY)
    here_only = f"/proc/self/fd/{folder}/*.npz"  # this path does not exist in another process
    with (
        add_maps(fb.from_files(here_only), "ray").feed() as on_ray,
        add_maps(fb.from_files(files), "thread").feed() as in_threads,
    ):
        assert_same(copy_batches(on_ray), copy_batches(in_threads))
    os.close(folder)
    assert "it cannot read them" in on_ray.explain()


def test_rows_go_to_ray_after_a_map_in_threads():
    first = fb.from_arrays(rows()).shuffle(seed=1).batch(32).map(narrow)
    with first.map(narrow, where="ray").feed() as on_ray, first.map(narrow).feed() as in_threads:
        assert_same(copy_batches(on_ray), copy_batches(in_threads))
    assert "runs in this process, before the map on Ray" in on_ray.explain()


def test_rows_of_variable_length_are_padded_equally():
    def pad_on(where):
        return fb.from_arrays(rows()).map(repeat_number, where=where).batch(32, pad=-1)

    with pad_on("thread").feed() as in_threads, pad_on("ray").feed() as on_ray:
        assert_same(copy_batches(on_ray), copy_batches(in_threads))


@pytest.mark.parametrize("options", [{"pad": -1}, {"ragged": True}])
def test_rows_of_different_length_reach_ray_without_padding(options):
    texts = fb.from_ragged(np.arange(100), [0, 3, 3, 60, 61, 100])

    def double_on(where):
        return texts.map(append_itself).map(append_itself, where=where).batch(2, **options).map(negate, where=where)

    with double_on("thread").feed("numpy") as in_threads, double_on("ray").feed("numpy") as on_ray:
        assert [batch.tolist() for batch in on_ray] == [batch.tolist() for batch in in_threads]


def test_a_generator_is_read_locally_and_mapped_on_ray():
    def generate_on(where):
        return fb.from_generator(lambda: iter([{"x": np.arange(3.0) + n, "number": n} for n in range(100)])).map(
            blur, where=where
        )

    with generate_on("thread").batch(8).feed() as in_threads, generate_on("ray").batch(8).feed() as on_ray:
        assert_same(copy_batches(on_ray), copy_batches(in_threads))


def test_a_shard_resumes_in_mid_epoch_on_another_number_of_shards_and_rows_keep_their_random_numbers():
    def rows_of(batches):
        batches = list(batches)
        return {name: np.concatenate([batch[name] for batch in batches]) for name in ("number", "x")}

    with add_maps(fb.from_arrays(rows()), "ray").feed() as on_ray:
        batches = iter(on_ray)
        first = rows_of([next(batches) for _ in range(5)])
        state = json.loads(json.dumps(on_ray.state_dict()))
    halves = []
    for index in range(2):
        with add_maps(fb.from_arrays(rows()), "ray").shard(index, 2).feed() as on_ray:
            on_ray.load_state_dict(state)
            halves.append(rows_of(on_ray))
    with add_maps(fb.from_arrays(rows()), "thread").feed() as in_threads:
        expected = rows_of(in_threads)
    for name, leaf in expected.items():
        assert np.array_equal(first[name], leaf[: 5 * 32])
        assert np.array_equal(halves[0][name], leaf[5 * 32 :: 2])
        assert np.array_equal(halves[1][name], leaf[5 * 32 + 1 :: 2])


@pytest.mark.parametrize("pad", [None, 0])
def test_rows_for_which_a_map_fails_are_replaced_and_reported_as_in_threads(pad):
    def skip_on(where):
        refused = fb.from_arrays(rows()).shuffle(seed=2).map(refuse_300, where=where, on_error="skip")
        return refused.map(blur, where=where).batch(32, pad=pad)

    with skip_on("thread").feed() as in_threads, skip_on("ray").feed() as on_ray:
        assert_same(copy_batches(on_ray), copy_batches(in_threads))
        assert on_ray.stats()["skipped_rows"] == in_threads.stats()["skipped_rows"]
        assert on_ray.stats()["skipped_rows"]["first"][0]["row"] == 300


def test_bytes_in_flight_stay_within_the_plan():
    with add_maps(fb.from_arrays(rows()), "ray").feed() as on_ray:
        copy_batches(on_ray)
    counted = on_ray.stats()["ray"]
    assert 0 < counted["most_in_flight_nbytes"] <= on_ray.plan.threads * on_ray.plan.task_nbytes
    assert counted["in_flight_nbytes"] == 0
    assert "in flight" in on_ray.explain()
