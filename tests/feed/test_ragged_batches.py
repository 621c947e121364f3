"""Ragged batches: values and offsets, on every path of a feed."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import forebay as fb
from forebay.errors import PipelineError, SpecError
from forebay.testing import SimulatedEngine
from forebay.testing.strategies import seeds

LENGTHS = [3, 0, 5, 1, 3, 7, 0, 4, 6, 1, 2]
TEXTS = [np.arange(length) + 10 * row for row, length in enumerate(LENGTHS)]
ROWS = [{"text": text, "row": np.int64(row)} for row, text in enumerate(TEXTS)]
AS_LISTS = [text.tolist() for text in TEXTS]


def texts(pipeline, **options):
    with pipeline.feed("numpy", **options) as feed:
        return [row for batch in feed for row in (batch["text"] if isinstance(batch, dict) else batch).tolist()]


def make_text(row):
    return np.arange(LENGTHS[row]) + 10 * row


SOURCES = {
    "items": lambda: fb.from_source(ROWS),
    "single leaf": lambda: fb.from_source(TEXTS),
    "generator": lambda: fb.from_generator(lambda: iter(ROWS)),
    "generator with a spec": lambda: fb.from_generator(lambda: iter(TEXTS), spec=fb.ArraySpec((None,), "int64")),
    "map": lambda: fb.from_arrays(np.arange(len(TEXTS))).map(make_text),
    "map of ragged rows": lambda: fb.from_source(TEXTS).map(lambda text: text),
    "concat": lambda: fb.concat(fb.from_source(TEXTS[:4]), fb.from_source(TEXTS[4:])),
}


@pytest.mark.parametrize("device", ["cpu", "simulated"])
@pytest.mark.parametrize("make", SOURCES.values(), ids=SOURCES)
def test_every_source_delivers_its_rows(make, device):
    engine = SimulatedEngine() if device == "simulated" else "cpu"
    assert texts(make().batch(4, ragged=True), device=engine) == AS_LISTS


@pytest.mark.slow
def test_a_worker_process_returns_ragged_rows():
    rows = fb.from_arrays(np.arange(len(TEXTS))).map(make_text, where="process", workers=1)
    assert texts(rows.batch(4, ragged=True)) == AS_LISTS


def test_a_batch_has_values_offsets_and_dense_fields():
    with fb.from_source(ROWS).batch(4, ragged=True).feed("numpy") as feed:
        batch = next(feed)
        assert batch["text"].values.tolist() == np.concatenate(TEXTS[:4]).tolist()
        assert batch["text"].offsets.tolist() == [0, 3, 3, 8, 9]
        assert batch["text"].offsets.dtype == np.int64
        assert batch["row"].tolist() == [0, 1, 2, 3]
        assert feed.specs[0] == fb.ArraySpec((None,), "int64")


def test_only_named_fields_are_ragged():
    rows = [{"text": text, "box": np.zeros(4)} for text in TEXTS]
    with fb.from_source(rows).batch(4, ragged="text").feed("numpy") as feed:
        assert next(feed)["box"].shape == (4, 4)
    with fb.from_source(rows).batch(4, ragged=["text", "box"]).feed("numpy") as feed:
        assert next(feed)["box"].lengths.tolist() == [4] * 4


def test_rows_may_have_more_dimensions():
    rows = [np.full((length, 2), length) for length in LENGTHS]
    with fb.from_source(rows).batch(5, ragged=True).feed("numpy") as feed:
        assert next(feed).values.shape == (sum(LENGTHS[:5]), 2)


def test_a_batch_of_empty_rows_has_no_values():
    with fb.from_source([np.zeros(0, np.int32)] * 3).batch(2, ragged=True).feed("numpy") as feed:
        assert [(batch.values.shape, batch.offsets.tolist()) for batch in feed] == [((0,), [0, 0, 0]), ((0,), [0, 0])]


def test_batches_use_the_memory_of_the_slot_and_stay_valid():
    with fb.from_source(TEXTS * 40).batch(3, ragged=True).feed("numpy") as feed:
        kept = list(feed)
        assert all(not batch.values.flags.owndata for batch in kept)
        assert [row for batch in kept for row in batch.tolist()] == AS_LISTS * 40


@given(count=st.integers(1, 3), other=st.integers(1, 3), seed=seeds, data=st.data())
def test_a_state_resumes_on_another_number_of_shards(count, other, seed, data):
    pipeline = fb.from_source(TEXTS).shuffle(seed=seed)
    whole = texts(pipeline.batch(1, ragged=True))
    steps = data.draw(st.integers(0, len(whole) // count - 1))
    with pipeline.shard(0, count).batch(1, ragged=True).feed("numpy") as feed:
        for _ in range(steps):
            next(feed)
        state = json.loads(json.dumps(feed.state_dict()))
    for index in range(other):
        with pipeline.shard(index, other).batch(1, ragged=True).feed("numpy") as feed:
            feed.load_state_dict(state)
            assert [row for batch in feed for row in batch.tolist()] == whole[steps * count :][index::other]


@pytest.mark.parametrize(
    ("transform", "expected"),
    [
        (fb.cast("float32"), [float(value) for value in range(3)]),
        (fb.scale(2.0), [0.0, 2.0, 4.0]),
        (fb.one_hot(200, dtype="uint8"), np.eye(200, dtype=int)[:3].tolist()),
        (lambda batch: fb.Ragged(batch.values + 1, batch.offsets), [1, 2, 3]),
    ],
)
def test_transforms_change_the_values(transform, expected):
    with fb.from_source(TEXTS).batch(4, ragged=True).map(transform).feed("numpy") as feed:
        assert next(feed)[0].tolist() == expected


def test_a_map_on_a_batch_may_return_dense_rows():
    with fb.from_source(TEXTS).batch(4, ragged=True).map(lambda batch: batch.lengths).feed("numpy") as feed:
        assert [length for batch in feed for length in batch.tolist()] == LENGTHS


@pytest.mark.parametrize(
    "change",
    [
        lambda ragged: fb.Ragged(ragged.values[:3], ragged.offsets),
        lambda ragged: fb.Ragged(ragged.values, ragged.offsets + 1),
        lambda ragged: fb.Ragged(ragged.values, ragged.offsets[::-1]),
        lambda ragged: fb.Ragged(ragged.values, ragged.offsets * 1.0),
        lambda ragged: fb.Ragged(ragged.values, []),
        lambda ragged: fb.Ragged(3, ragged.offsets),
    ],
)
def test_a_map_must_return_offsets_that_fit_the_values(change):
    with pytest.raises(SpecError, match=r"the offsets of ragged rows do not fit their \d+ values\. Begin offsets"):
        texts(fb.from_source(TEXTS).batch(4, ragged=True).map(change))


def test_a_map_may_return_ragged_rows_of_lists():
    lists = fb.from_source(TEXTS).batch(4, ragged=True).map(lambda ragged: fb.Ragged([1] * len(ragged), range(5)))
    assert texts(lists.take(1)) == [[1]] * 4


def test_explain_names_the_ragged_fields():
    with fb.from_source(ROWS).batch(4, ragged=True).feed("numpy") as feed:
        assert "ragged" in feed.explain()
        assert "text" in next(decision.choice for decision in feed.plan.decisions if decision.name == "ragged")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ragged": True, "pad": 0}, "Pass one of the two"),
        ({"ragged": ()}, "pass True, the name of a field"),
        ({"ragged": 3}, "pass True, the name of a field"),
        ({"ragged": "label"}, "no such field has a variable length"),
        ({"ragged": "row"}, "no such field has a variable length"),
    ],
)
def test_wrong_arguments_are_refused(options, message):
    with pytest.raises(PipelineError, match=message):
        fb.from_source(ROWS).batch(4, **options).feed("numpy")


def test_ragged_batches_of_rows_of_one_shape_are_refused():
    with pytest.raises(PipelineError, match="all rows have one shape"):
        fb.from_arrays(np.zeros((4, 2))).batch(2, ragged=True).feed("numpy")


def test_several_variable_lengths_are_refused():
    rows = fb.from_generator(lambda: iter([np.zeros((1, 2))]), spec=fb.ArraySpec((None, None), "float64"))
    with pytest.raises(PipelineError, match="several variable lengths"):
        rows.batch(2, ragged=True).feed("numpy")


def test_rows_that_differ_in_another_length_are_refused():
    rows = fb.from_source([np.zeros((1, 2)), np.zeros((1, 3))]).batch(2, ragged=True)
    with rows.feed("numpy") as feed, pytest.raises(SpecError, match="only in their first length"):
        next(feed)


def test_a_field_that_is_not_named_must_have_one_shape():
    rows = fb.from_source([{"a": text, "b": text} for text in TEXTS]).batch(3, ragged="a")
    with rows.feed("numpy") as feed, pytest.raises(SpecError, match="name the field in batch"):
        next(feed)


def test_the_bytes_of_batches_that_differ_in_size_are_counted():
    with fb.from_source(TEXTS).batch(4, ragged=True).feed("numpy") as feed:
        nbytes = sum(batch.nbytes for batch in feed)
        assert feed.stats()["nbytes"] == nbytes
