"""Bytes that travel between nodes in pieces arrive as they were, and arrays are put into the object store once."""

import numpy as np
import pytest
import ray
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from tests.transforms.workers.on_ray.conftest import assert_same, taken, wait_for_workers
from tests.transforms.workers.on_ray.maps import RefusedError, narrow, refuse_300, wide_rows

import forebay as fb
from forebay.transforms.workers.ray_actor_handle import Member
from forebay.transforms.workers.ray_inline import (
    MOST_NBYTES,
    MOST_NBYTES_ON_A_NODE,
    PIECE_NBYTES,
    count_pieces,
    cut,
    join,
    same_bytes,
)

ARRAYS = st.lists(
    arrays_of.arrays(
        st.sampled_from(["u1", "<f8", "?", "M8[s]", "S3"]), arrays_of.array_shapes(min_side=0, max_dims=3)
    ),
    max_size=4,
)


@given(ARRAYS, st.integers(1, 9))
def test_what_was_cut_is_the_same_when_it_is_joined(arrays, count):
    pieces, out = cut(arrays, count), [np.empty_like(array) for array in arrays]
    join(pieces, out)
    assert len(pieces) == count
    assert same_bytes(out, arrays)


@given(ARRAYS)
def test_whole_arrays_are_joined_like_pieces(arrays):
    out = [np.empty_like(array) for array in arrays]
    join(arrays, out)
    assert same_bytes(out, arrays)


def test_bytes_that_are_missing_are_not_passed_over():
    with pytest.raises(AssertionError, match="1 bytes are missing"):
        join([b"abc"], [np.empty(4, np.uint8)])


@pytest.mark.parametrize(
    ("nbytes", "pieces"),
    [(0, 1), (1, 1), (PIECE_NBYTES, 1), (PIECE_NBYTES + 1, 2), (MOST_NBYTES + 1, 1)],
)
def test_no_piece_is_larger_than_a_message_may_carry(nbytes, pieces):
    assert count_pieces(nbytes, one_node=False) == pieces


def test_pieces_within_a_node_end_earlier():
    assert count_pieces(MOST_NBYTES_ON_A_NODE, one_node=True) == count_pieces(MOST_NBYTES_ON_A_NODE, one_node=False)
    assert count_pieces(MOST_NBYTES_ON_A_NODE + 1, one_node=True) == 1


@pytest.mark.parametrize("view", [lambda rows: rows, lambda rows: rows[:, ::2], lambda rows: rows.T, np.asfortranarray])
def test_one_changed_number_is_seen_wherever_it_lies(view):
    before = np.arange(300 * 300, dtype=np.float64).reshape(300, 300)
    before[7] = np.nan
    after = before.copy()
    assert same_bytes([view(before)], [view(after)])
    after[299, 298] += 1
    assert not same_bytes([view(before)], [view(after)])


@pytest.fixture
def answers(cluster, monkeypatch):
    """In how many pieces each answer came, by the node of its worker."""
    found, ask = {}, Member.ask

    def asked(member, question):
        found.setdefault(member.greeting.node_id, set()).add(question.answers)
        return ask(member, question)

    monkeypatch.setattr(Member, "ask", asked)
    return found


@pytest.mark.parametrize(("batch_rows", "here", "there"), [(48, 2, 2), (280, 1, 12)])
def test_batches_come_in_pieces_and_as_from_threads(answers, batch_rows, here, there):
    def mapped(where):
        batches = fb.from_arrays(wide_rows()).shuffle(seed=5).batch(batch_rows, drop_remainder=True)
        return batches.map(narrow, where=where)

    with mapped("thread").feed() as plain, mapped("ray").feed() as far:
        wait_for_workers(far, 2)
        assert_same(taken(far), taken(plain))
    assert answers.pop(ray.get_runtime_context().get_node_id()) == {here}
    assert list(answers.values()) == [{there}]


@pytest.mark.usefixtures("cluster")
def test_rows_that_are_sent_in_pieces_are_the_maps_own():
    first = fb.from_arrays(wide_rows()).shuffle(seed=1).batch(48).map(narrow)
    with first.map(narrow, where="ray").feed() as far, first.map(narrow).feed() as plain:
        assert_same(taken(far), taken(plain))
        assert_same(taken(far), taken(plain))


@pytest.mark.usefixtures("cluster")
def test_batches_before_one_that_fails_come_whole():
    ours = []
    with fb.from_arrays(wide_rows()).map(refuse_300, where="ray").batch(48).feed() as far, pytest.raises(RefusedError):
        ours.extend(batch["x"].copy() for batch in far)
    assert np.array_equal(np.concatenate(ours), wide_rows()["x"][: 300 // 48 * 48])


@pytest.mark.usefixtures("cluster")
def test_arrays_are_put_into_the_store_anew_only_when_they_have_changed(monkeypatch):
    changing, put, given_to_ray = wide_rows(), ray.put, []
    with fb.from_arrays(changing).batch(48).map(narrow, where="ray").feed() as far:
        monkeypatch.setattr(ray, "put", lambda value: given_to_ray.append(value) or put(value))
        taken(far)
        before = taken(far)
        assert len(given_to_ray) == 1
        changing["x"][-1, -1] += 7.0
        after = taken(far)
        assert len(given_to_ray) == 2
    assert after[-1]["x"][-1, -1] == before[-1]["x"][-1, -1] + 7.0
