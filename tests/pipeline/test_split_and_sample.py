"""`split` and `sample`: disjoint parts, and draws by weight."""

import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.pipeline.row_pipelines import DATA, TEN, rows

import forebay as fb
from forebay.errors import BudgetError, PipelineError
from forebay.order.sampling import MAX_WEIGHTS
from forebay.testing.strategies import seeds


@given(length=st.integers(3, 500), seed=st.none() | seeds, cuts=st.lists(st.integers(1, 9), min_size=1, max_size=3))
def test_the_parts_of_a_split_have_every_row_once(length, seed, cuts):
    if length < 50:
        cuts = [5, 5]
    fractions = [cut / sum(cuts) for cut in cuts]
    parts = fb.from_arrays(np.arange(length)).split(*fractions, seed=seed)
    found = [rows(part) for part in parts]
    assert sorted(row for part in found for row in part) == list(range(length))
    assert all(abs(len(part) - fraction * length) < 1 for part, fraction in zip(found, fractions, strict=True))


def test_a_split_into_numbers_of_rows_is_the_split_into_their_fractions():
    for fractions, counts in zip(TEN.split(0.7, 0.3, seed=4), TEN.split(7, np.int64(3), seed=4), strict=True):
        assert rows(counts) == rows(fractions)
    assert [len(part) for part in TEN.split(7, 3)] == [7, 3]


def test_a_split_depends_only_on_the_number_of_rows_the_fractions_and_the_seed():
    first, second = (
        [rows(part) for part in fb.from_arrays(np.arange(100) + offset).split(0.7, 0.3, seed=3)] for offset in (0, 1000)
    )
    assert [[row + 1000 for row in part] for part in first] == second
    assert rows(TEN.split(0.5, 0.5, seed=0)[0]) != rows(TEN.split(0.5, 0.5, seed=1)[0])


def test_without_a_seed_the_parts_are_consecutive_rows():
    parts = TEN.split(0.5, 0.3, 0.2, seed=None)
    assert [rows(part) for part in parts] == [[0, 1, 2, 3, 4], [5, 6, 7], [8, 9]]


def test_the_largest_remainder_gets_the_row_that_is_left():
    assert [part.order.length for part in TEN.split(1 / 3, 1 / 3, 1 / 3)] == [4, 3, 3]
    assert [part.order.length for part in TEN.split(0.26, 0.74)] == [3, 7]


def test_a_shuffled_part_has_another_order_in_each_epoch_and_always_the_same_rows():
    part = fb.from_arrays(np.arange(50)).split(0.5, 0.5)[1].shuffle(seed=0)
    epochs = [rows(part, epoch=epoch) for epoch in range(3)]
    assert len(set(map(tuple, epochs))) == 3
    assert len({tuple(sorted(epoch)) for epoch in epochs}) == 1


@pytest.mark.parametrize(
    ("fractions", "message"),
    [
        ((), r"split\(\): pass the fraction"),
        ((0.5, 0.4), "the sum 0.9"),
        ((6, 3), "or numbers of rows with the sum 10"),
        ((0.9, 0.2), "the sum 1.1"),
        ((1.0, 0.0), "a number above 0"),
        ((1.5, -0.5), "a number above 0"),
        ((0.5, "half"), "a number above 0"),
        ((float("nan"), 0.5), "a number above 0"),
        ((True,), "a number above 0"),
        ((0.99, 0.01), "of 10 rows leaves part 1 without a row"),
    ],
)
def test_split_refuses_invalid_fractions(fractions, message):
    with pytest.raises(PipelineError, match=message):
        TEN.split(*fractions)


def test_split_refuses_a_seed_that_is_no_number():
    with pytest.raises(PipelineError, match=r"split\(seed='x'\)"):
        TEN.split(0.5, 0.5, seed="x")


labels_of_rows = st.one_of(
    st.lists(st.integers(-5, 5), min_size=20, max_size=80).map(np.array),
    st.lists(st.integers(0, 2**64 - 1), min_size=20, max_size=80).map(lambda labels: np.array(labels, np.uint64)),
    st.lists(st.sampled_from(["a", "b", "cc", "d", "e", "f"]), min_size=20, max_size=80).map(np.array),
)


@given(labels=labels_of_rows, seed=st.none() | seeds)
def test_all_rows_with_one_label_are_in_one_part(labels, seed):
    largest = np.unique(labels, return_counts=True)[1].max()
    assume(largest < len(labels) / 2)
    parts = fb.from_arrays(np.arange(len(labels))).split(0.5, 0.5, seed=seed, by=labels)
    found = [rows(part) for part in parts]
    assert sorted(found[0] + found[1]) == list(range(len(labels)))
    assert not set(labels[found[0]].tolist()) & set(labels[found[1]].tolist())
    assert all(part == sorted(part) for part in found)
    assert abs(len(found[0]) - len(labels) / 2) <= largest / 2 + 0.5


def test_a_split_by_a_field_is_the_split_by_its_values():
    pipeline = fb.from_arrays(DATA)
    by_field, by_values = (pipeline.split(0.7, 0.3, by=by, seed=2) for by in ("label", DATA["label"]))
    assert by_field == by_values
    assert rows(by_field[0], "x") != rows(pipeline.split(0.7, 0.3, by="label", seed=3)[0], "x")


def test_a_split_by_groups_without_a_seed_takes_groups_in_their_order():
    parts = fb.from_arrays(np.arange(6)).split(0.5, 0.5, seed=None, by=["z", "z", "a", "m", "m", "m"])
    assert [rows(part) for part in parts] == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    ("by", "message"),
    [
        ("name", r"split\(\) found no field named 'name' in a row with x, label, image"),
        ("image", r"needs one value for each row, but 'image' has"),
        ([1, 2], r"labels of shape \[2\] for 12 rows"),
        (np.zeros((12, 1)), r"labels of shape \[12, 1\]"),
        ([1] * 12, r"has 1 groups, the largest of 12 rows, and part"),
        (np.array([1, "a", None] * 4, object), "cannot be compared"),
    ],
)
def test_split_refuses_labels_that_form_no_groups(by, message):
    with pytest.raises(PipelineError, match=message):
        fb.from_arrays(DATA).split(0.9, 0.1, by=by)


def test_balance_gives_every_class_the_same_share():
    labels = np.array([0] * 900 + [1] * 90 + [2] * 10)
    pipeline = fb.from_arrays(labels).sample(balance=labels, rows=30_000)
    shares = np.bincount(rows(pipeline), minlength=3) / 30_000
    assert np.abs(shares - 1 / 3).max() < 0.02


def test_balance_by_a_field_is_balance_by_its_values():
    pipeline = fb.from_arrays(DATA).skip(2)
    by_field, by_values = pipeline.sample(balance="label"), pipeline.sample(balance=DATA["label"][2:])
    assert by_field == by_values
    assert rows(by_field, "x") == rows(by_values, "x")


def test_an_epoch_has_as_many_rows_as_before_unless_rows_is_given():
    assert len(rows(TEN.sample(weights=range(10)))) == 10
    assert len(rows(TEN.sample(weights=range(10), rows=25))) == 25
    assert sorted(rows(TEN.sample(weights=np.ones(10), replacement=False))) == list(range(10))


def test_each_pass_of_repeat_draws_other_rows():
    found = rows(TEN.sample(weights=np.ones(10)).repeat(3))
    assert len({tuple(found[start:stop]) for start, stop in pairwise([0, 10, 20, 30])}) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "neither of weights= and balance="),
        ({"weights": np.ones(12), "balance": "label"}, "both of weights= and balance="),
        ({"weights": np.ones(11)}, r"weights of shape \[11\] for 12 rows"),
        ({"weights": np.ones((12, 1))}, r"weights of shape \[12, 1\]"),
        ({"weights": 1.0}, r"weights of shape \[\]"),
        ({"weights": ["a"] * 12}, "got no numbers"),
        ({"weights": {0: 1.0, 1: 2.0}}, r"got a dict. Pass one number for each row: weights=\[class_weight"),
        ({"weights": [1] * 11 + [-0.5]}, "got -0.5 for row 11"),
        ({"weights": [1, float("nan")] * 6}, "got nan for row 1"),
        ({"weights": [float("inf")] * 12}, "got inf for row 0"),
        ({"weights": np.zeros(12)}, "only zeros for 12 rows"),
        ({"weights": [1, 0] * 6, "replacement": False}, "only 6 rows have a weight above 0"),
        ({"weights": np.ones(12), "rows": 13, "replacement": False}, "only 12 rows"),
        ({"weights": np.ones(12), "rows": 0}, r"sample\(rows=0\): pass a whole number of at least 1"),
        ({"weights": np.ones(12), "seed": 0.5}, r"sample\(seed=0.5\)"),
        ({"weights": np.ones(12) * 1j}, r"complex numbers \(complex128\), and their imaginary part would be lost"),
        ({"weights": np.ma.ones(12)}, r"sample\(weights=...\) got a masked array, and its mask would be lost"),
        ({"balance": np.ma.zeros(12)}, r"sample\(balance=...\) got a masked array"),
        ({"balance": "name"}, r"sample\(\) found no field named 'name' in .* or add the field to the source\."),
        ({"balance": "image"}, "one value for each row"),
        ({"balance": [1, 2]}, r"labels of shape \[2\]"),
    ],
)
def test_sample_refuses_invalid_arguments(options, message):
    with pytest.raises(PipelineError, match=message):
        fb.from_arrays(DATA).sample(**options)


def test_sample_refuses_more_rows_than_its_table_supports():
    many = fb.from_arrays(np.arange(2)).repeat(MAX_WEIGHTS)
    with pytest.raises(PipelineError, match=f"supports {MAX_WEIGHTS} rows"):
        many.sample(weights=np.broadcast_to(1.0, 2 * MAX_WEIGHTS))


@pytest.mark.parametrize("dtype", [np.int8, np.int16])
def test_labels_may_span_the_whole_range_of_their_dtype(dtype):
    limits = np.iinfo(dtype)
    labels = np.array([limits.min, limits.max, -1, 5, limits.max, limits.min], dtype)
    pipeline = fb.from_arrays({"x": np.arange(6), "label": labels})
    parts = [set(rows(part, "x")) for part in pipeline.split(0.5, 0.5, by="label")]
    assert parts[0] | parts[1] == set(range(6))
    assert any({0, 5} <= part for part in parts)
    assert any({1, 4} <= part for part in parts)
    assert len(rows(pipeline.sample(balance="label"), "x")) == 6


def test_sample_refuses_a_replacement_that_is_no_boolean():
    with pytest.raises(PipelineError, match="pass True or False"):
        TEN.sample(weights=np.ones(10), replacement="no")


WITHOUT_REPLACEMENT = fb.from_arrays(np.arange(200_000)).sample(weights=np.ones(200_000), replacement=False)
SAMPLES = {
    "alone": WITHOUT_REPLACEMENT.batch(10),
    "in an interleave": fb.interleave(WITHOUT_REPLACEMENT, TEN, stop="all").batch(10),
    "with rows of unknown size": WITHOUT_REPLACEMENT.map(lambda row: np.zeros(row % 5 + 1)).batch(10, pad=0),
}


@pytest.mark.parametrize("pipeline", SAMPLES.values(), ids=SAMPLES)
def test_the_tables_of_a_sample_without_replacement_belong_to_the_budget(pipeline):
    with pytest.raises(BudgetError, match=r"tables of the order take [78]\.\d MiB") as refused:
        pipeline.feed("numpy", host_bytes="6MiB")
    enough = re.search(r"Pass host_bytes='(\w+)'", str(refused.value))[1]
    with pipeline.feed("numpy", host_bytes=enough) as feed:
        assert len(next(feed)) == 10


def test_explain_names_the_tables_of_a_sample_without_replacement():
    with SAMPLES["alone"].feed("numpy") as feed:
        assert "tables of the order take" in str(feed.explain())
    with fb.from_arrays(np.arange(10)).sample(weights=np.ones(10)).batch(2).feed("numpy") as feed:
        assert "tables of the order" not in str(feed.explain())
