"""Rows sent in pieces arrive unchanged, and arrays are put into the object store once."""

import numpy as np
import pytest
import ray
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests.transforms.workers.on_ray.conftest import assert_same, copy_batches, wait_for_workers
from tests.transforms.workers.on_ray.maps import RefusedError, narrow, refuse_300, wide_rows

import forebay as fb
from forebay.transforms.workers.ray_actor_handle import ActorHandle
from forebay.transforms.workers.ray_inline import (
    MAX_INLINE_NBYTES,
    MAX_INLINE_NBYTES_ON_ONE_NODE,
    PIECE_NBYTES,
    are_bytes_equal,
    count_pieces,
    join_bytes,
    split_bytes,
)

ARRAYS = st.lists(
    hnp.arrays(st.sampled_from(["u1", "<f8", "?", "M8[s]", "S3"]), hnp.array_shapes(min_side=0, max_dims=3)),
    max_size=4,
)


@given(ARRAYS, st.integers(1, 9))
def test_splitting_and_joining_gives_the_same_bytes(arrays, count):
    pieces, out = split_bytes(arrays, count), [np.empty_like(array) for array in arrays]
    join_bytes(pieces, out)
    assert len(pieces) == count
    assert are_bytes_equal(out, arrays)


@given(ARRAYS)
def test_whole_arrays_are_joined_like_pieces(arrays):
    out = [np.empty_like(array) for array in arrays]
    join_bytes(arrays, out)
    assert are_bytes_equal(out, arrays)


def test_joining_too_few_bytes_fails():
    with pytest.raises(AssertionError, match="1 bytes are missing"):
        join_bytes([b"abc"], [np.empty(4, np.uint8)])


@pytest.mark.parametrize(
    ("nbytes", "pieces"),
    [(0, 1), (1, 1), (PIECE_NBYTES, 1), (PIECE_NBYTES + 1, 2), (MAX_INLINE_NBYTES + 1, 1)],
)
def test_results_within_the_message_limit_are_split_into_pieces(nbytes, pieces):
    assert count_pieces(nbytes, one_node=False) == pieces


def test_the_limit_within_one_node_is_lower():
    limit = MAX_INLINE_NBYTES_ON_ONE_NODE
    assert count_pieces(limit, one_node=True) == count_pieces(limit, one_node=False)
    assert count_pieces(limit + 1, one_node=True) == 1


@pytest.mark.parametrize("view", [lambda rows: rows, lambda rows: rows[:, ::2], lambda rows: rows.T, np.asfortranarray])
def test_one_changed_number_makes_arrays_unequal(view):
    before = np.arange(300 * 300, dtype=np.float64).reshape(300, 300)
    before[7] = np.nan
    after = before.copy()
    assert are_bytes_equal([view(before)], [view(after)])
    after[299, 298] += 1
    assert not are_bytes_equal([view(before)], [view(after)])


@pytest.fixture
def piece_counts(cluster, monkeypatch):
    """The number of pieces of each result, by the node of its worker."""
    found, submit = {}, ActorHandle.submit

    def recording_submit(worker, request):
        found.setdefault(worker.info.node_id, set()).add(request.num_returns)
        return submit(worker, request)

    monkeypatch.setattr(ActorHandle, "submit", recording_submit)
    return found


@pytest.mark.parametrize(("batch_rows", "same_node", "other_node"), [(48, 2, 2), (280, 1, 12)])
def test_batches_in_pieces_equal_those_of_threads(piece_counts, batch_rows, same_node, other_node):
    def add_maps(where):
        batches = fb.from_arrays(wide_rows()).shuffle(seed=5).batch(batch_rows, drop_remainder=True)
        return batches.map(narrow, where=where)

    with add_maps("thread").feed() as in_threads, add_maps("ray").feed() as on_ray:
        wait_for_workers(on_ray, 2)
        assert_same(copy_batches(on_ray), copy_batches(in_threads))
    assert piece_counts.pop(ray.get_runtime_context().get_node_id()) == {same_node}
    assert list(piece_counts.values()) == [{other_node}]


@pytest.mark.usefixtures("cluster")
def test_a_map_may_change_rows_sent_in_pieces():
    first = fb.from_arrays(wide_rows()).shuffle(seed=1).batch(48).map(narrow)
    with first.map(narrow, where="ray").feed() as on_ray, first.map(narrow).feed() as in_threads:
        assert_same(copy_batches(on_ray), copy_batches(in_threads))
        assert_same(copy_batches(on_ray), copy_batches(in_threads))


@pytest.mark.usefixtures("cluster")
def test_batches_before_a_failing_one_are_complete():
    ours = []
    with (
        fb.from_arrays(wide_rows()).map(refuse_300, where="ray").batch(48).feed() as on_ray,
        pytest.raises(RefusedError),
    ):
        ours.extend(batch["x"].copy() for batch in on_ray)
    assert np.array_equal(np.concatenate(ours), wide_rows()["x"][: 300 // 48 * 48])


@pytest.mark.usefixtures("cluster")
def test_arrays_are_put_into_the_store_again_only_after_a_change(monkeypatch):
    changing, put, given_to_ray = wide_rows(), ray.put, []
    with fb.from_arrays(changing).batch(48).map(narrow, where="ray").feed() as on_ray:
        monkeypatch.setattr(ray, "put", lambda value: given_to_ray.append(value) or put(value))
        copy_batches(on_ray)
        before = copy_batches(on_ray)
        assert len(given_to_ray) == 1
        changing["x"][-1, -1] += 7.0
        after = copy_batches(on_ray)
        assert len(given_to_ray) == 2
    assert after[-1]["x"][-1, -1] == before[-1]["x"][-1, -1] + 7.0
