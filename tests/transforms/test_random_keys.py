"""The random generators of rows: each has the numbers of its own Philox counter."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.order.permutation import derive_key
from forebay.transforms.batch_context import BatchContext
from forebay.transforms.random_keys import ROW_MAP_TAG, row_generators

ROW_ID = st.integers(0, 2**62)
KEYS = st.builds(
    BatchContext,
    epoch=st.integers(0, 2**40),
    passes=st.integers(0, 2**32),
    position=st.integers(0, 2**62),
    row_ids=st.lists(ROW_ID, min_size=1, max_size=6).map(lambda ids: np.array(ids, np.intp)),
    transform=st.integers(0, 9),
)


def new_generator(seed, key, row_id):
    numbers = derive_key(seed, key.epoch, key.passes, key.transform, ROW_MAP_TAG)
    return np.random.Generator(np.random.Philox(key=numbers, counter=row_id << 192))


def draw(generator):
    return [generator.random(), *generator.integers(0, 2**32, 3, np.uint32).tolist(), generator.standard_normal()]


def draws(seed, key):
    return [draw(generator) for generator in row_generators(seed, key)]


@given(seed=st.integers(-(2**63), 2**64), key=KEYS)
def test_the_numbers_of_a_row_are_those_of_a_new_generator(seed, key):
    assert draws(seed, key) == [draw(new_generator(seed, key, row_id)) for row_id in key.row_ids.tolist()]


@given(counts=st.lists(st.integers(0, 9), min_size=1, max_size=8))
def test_the_draws_of_a_row_do_not_change_the_numbers_of_the_next_row(counts):
    """An odd number of 32-bit numbers leaves half of a 64-bit number in the generator."""
    key = BatchContext(0, 0, 0, slice(0, len(counts)))
    drawn = []
    for count, generator in zip(counts, row_generators(1, key), strict=True):
        drawn.append(generator.integers(0, 2**32, dtype=np.uint32))
        generator.integers(0, 2**32, count, np.uint32)
    assert drawn == [generator.integers(0, 2**32, dtype=np.uint32) for generator in row_generators(1, key)]


def test_a_map_that_replaces_the_state_does_not_change_the_numbers_of_the_next_row():
    key, drawn = BatchContext(0, 0, 0, slice(0, 3)), []
    for generator in row_generators(1, key):
        drawn.append(draw(generator))
        generator.bit_generator.state = np.random.Philox(5).state
    assert drawn == draws(1, key)


def test_a_slice_and_an_array_of_row_ids_give_the_same_numbers():
    assert draws(3, BatchContext(1, 0, 0, slice(4, 7))) == draws(3, BatchContext(1, 0, 9, np.array([4, 5, 6])))


@pytest.mark.parametrize(
    ("seed", "other"),
    [
        (2, BatchContext(0, 0, 0, slice(0, 1))),
        (1, BatchContext(1, 0, 0, slice(0, 1))),
        (1, BatchContext(0, 1, 0, slice(0, 1))),
        (1, BatchContext(0, 0, 0, slice(1, 2))),
        (1, BatchContext(0, 0, 0, slice(0, 1), transform=1)),
    ],
)
def test_seed_epoch_pass_row_and_transform_change_the_numbers(seed, other):
    assert draws(seed, other) != draws(1, BatchContext(0, 0, 0, slice(0, 1)))


def test_the_numbers_of_the_first_map_are_not_those_that_shuffle_the_rows():
    shuffling = np.random.Generator(np.random.Philox(key=derive_key(7, 0)))
    assert draws(7, BatchContext(0, 0, 0, slice(0, 1))) != [draw(shuffling)]
