"""What comes off a Ray cluster is what one machine gives, bit for bit."""

import json
import os

import numpy as np
import pytest
from tests.transforms.workers.on_ray.conftest import assert_same, taken
from tests.transforms.workers.on_ray.maps import ROWS, blur, narrow, of_any_length, rows

import forebay as fb

pytestmark = pytest.mark.usefixtures("cluster")


def mapped(pipeline, where):
    return pipeline.shuffle(seed=5).map(blur, where=where).batch(32).map(narrow, where=where)


@pytest.fixture
def files(tmp_path):
    for part in range(4):
        whole = rows()
        cut = slice(part * ROWS // 4, (part + 1) * ROWS // 4)
        np.savez(tmp_path / f"part{part}.npz", x=whole["x"][cut], number=whole["number"][cut])
    return tmp_path / "*.npz"


def test_arrays_come_as_from_threads_over_epochs():
    with mapped(fb.from_arrays(rows()), "thread").feed() as plain, mapped(fb.from_arrays(rows()), "ray").feed() as far:
        assert_same(taken(far), taken(plain))
        assert_same(taken(far), taken(plain))
    assert "rows             stored" in far.explain()


def test_arrays_that_change_between_epochs_are_seen():
    changing = rows()
    with fb.from_arrays(changing).batch(32).map(narrow, where="ray").feed() as far:
        before = taken(far)
        changing["x"] += 7.0
        after = taken(far)
    assert np.array_equal(after[0]["x"], before[0]["x"] + 7.0)


def test_files_are_read_on_the_workers(files):
    with mapped(fb.from_files(files), "thread").feed() as plain, mapped(fb.from_files(files), "ray").feed() as far:
        assert_same(taken(far), taken(plain))
    assert "each worker opens the files itself" in far.explain()
    assert "gather" not in far.stats()["stages"]


def test_files_named_from_here_are_found_by_workers_elsewhere(files, monkeypatch):
    monkeypatch.chdir(files.parent)
    with mapped(fb.from_files("*.npz"), "ray").feed() as far, mapped(fb.from_files(files), "thread").feed() as plain:
        assert_same(taken(far), taken(plain))


def test_rows_of_files_that_a_worker_cannot_see_are_sent_to_it(files):
    folder = os.open(files.parent, os.O_DIRECTORY)
    here_only = f"/proc/self/fd/{folder}/*.npz"  # the same name leads nowhere in another process
    with mapped(fb.from_files(here_only), "ray").feed() as far, mapped(fb.from_files(files), "thread").feed() as plain:
        assert_same(taken(far), taken(plain))
    os.close(folder)
    assert "it cannot read them" in far.explain()


def test_rows_go_on_to_ray_after_a_map_in_threads():
    first = fb.from_arrays(rows()).shuffle(seed=1).batch(32).map(narrow)
    with first.map(narrow, where="ray").feed() as far, first.map(narrow).feed() as plain:
        assert_same(taken(far), taken(plain))
    assert "comes first, and runs here" in far.explain()


def test_rows_of_any_length_are_padded_alike():
    def padded(where):
        return fb.from_arrays(rows()).map(of_any_length, where=where).batch(32, pad=-1)

    with padded("thread").feed() as plain, padded("ray").feed() as far:
        assert_same(taken(far), taken(plain))


def test_a_generator_is_read_here_and_mapped_there():
    def generated(where):
        return fb.from_generator(lambda: iter([{"x": np.arange(3.0) + n, "number": n} for n in range(100)])).map(
            blur, where=where
        )

    with generated("thread").batch(8).feed() as plain, generated("ray").batch(8).feed() as far:
        assert_same(taken(far), taken(plain))


def test_a_shard_resumes_in_mid_epoch_on_another_number_of_shards():
    whole = mapped(fb.from_arrays(rows()), "thread")
    with mapped(fb.from_arrays(rows()), "ray").feed() as far:
        batches = iter(far)
        first = [next(batches) for _ in range(5)]
        state = json.loads(json.dumps(far.state_dict()))
    halves = []
    for index in range(2):
        with mapped(fb.from_arrays(rows()), "ray").shard(index, 2).feed() as far:
            far.load_state_dict(state)
            halves.append(np.concatenate([batch["number"] for batch in far]))
    with whole.feed() as plain:
        expected = np.concatenate([batch["number"] for batch in plain])
    rest = expected[5 * 32 :]
    assert np.array_equal(np.concatenate([batch["number"] for batch in first]), expected[: 5 * 32])
    assert np.array_equal(halves[0], rest[0::2])
    assert np.array_equal(halves[1], rest[1::2])


def test_bytes_in_flight_stay_within_what_was_planned():
    with mapped(fb.from_arrays(rows()), "ray").feed() as far:
        taken(far)
    counted = far.stats()["ray"]
    assert 0 < counted["most_in_flight_nbytes"] <= far.plan.threads * far.plan.task_nbytes
    assert counted["in_flight_nbytes"] == 0
    assert "in flight" in far.explain()
