"""`filter` keeps the rows for which a function of stored fields is true."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pipeline.row_pipelines import DATA, TEN, rows

import forebay as fb
from forebay.errors import PipelineError, SpecError
from forebay.pipeline import stored_columns
from forebay.sources.arrays import ArraySource


@pytest.mark.parametrize(
    ("function", "fields"),
    [
        (lambda batch: batch["label"] == 1, None),
        (lambda label: label == 1, "label"),
        (lambda batch: (batch["label"] == 1) & (batch["x"] >= 0), ("label", "x")),
        (lambda batch: [label == 1 for label in batch["label"]], ["label"]),
    ],
)
def test_filter_keeps_the_rows_for_which_the_function_is_true(function, fields):
    assert rows(fb.from_arrays(DATA).filter(function, fields=fields), "x") == [10, 40, 70, 100]


@given(length=st.integers(1, 100), chunk_nbytes=st.integers(1, 200), data=st.data())
def test_a_filter_sees_every_row_once_in_chunks_of_any_size(length, chunk_nbytes, data):
    skipped = data.draw(st.integers(0, length - 1))
    pipeline = data.draw(st.sampled_from([TEN, fb.from_arrays(np.arange(length)).skip(skipped).repeat(2)]))
    seen = []

    def keep_all(values):
        seen.extend(values.tolist())
        return values >= 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored_columns, "CHUNK_NBYTES", chunk_nbytes)
        assert rows(pipeline.filter(keep_all)) == rows(pipeline) == seen


def test_a_filter_reads_only_its_fields():
    class Recorded(ArraySource):
        def gather_leaves(self, leaves, rows):
            read.append(tuple(leaves))
            return super().gather_leaves(leaves, rows)

    read = []
    fb.from_source(Recorded(DATA)).filter(lambda label: label > 0, fields="label")
    assert read == [(1,)]


def test_rows_of_different_shapes_can_be_filtered_by_a_field_of_one_shape():
    items = [{"text": np.zeros(length, np.int32), "label": np.int64(length)} for length in (3, 1, 4, 1, 5)]
    pipeline = fb.from_source(items)
    long_rows = pipeline.filter(lambda label: label > 2, fields="label")
    assert [batch["text"].shape for batch in long_rows.batch(2, pad=0).feed("numpy")] == [(2, 4), (1, 5)]
    with pytest.raises(SpecError, match="row 1 has int32"):
        pipeline.filter(lambda text: text.any(axis=1), fields="text")


@pytest.mark.parametrize(
    ("function", "fields", "message"),
    [
        ("x > 3", None, "filter\\(\\) needs a function, got 'x > 3'"),
        (lambda batch: batch["label"], None, r"returned int64\[12\] for 12 rows"),
        (lambda batch: True, None, r"returned bool\[\] for 12 rows"),
        (lambda batch: np.ones(3, bool), None, r"returned bool\[3\] for 12 rows"),
        (lambda batch: np.ones((12, 1), bool), None, r"returned bool\[12, 1\]"),
        (lambda batch: None, None, r"returned object\[\]"),
        (lambda batch: batch["label"] > 5, None, "kept none of 12 rows"),
        (lambda label: label > 1, "name", "found no field named 'name'"),
        (lambda label: label > 1, ("label", "name"), "found no field named 'name'"),
        (lambda label: label > 1, (), "names no field"),
    ],
)
def test_filter_refuses_invalid_conditions(function, fields, message):
    with pytest.raises(PipelineError, match=message):
        fb.from_arrays(DATA).filter(function, fields=fields)


def test_an_error_of_the_function_says_that_it_receives_many_rows():
    with pytest.raises(ValueError, match="truth value") as raised:
        fb.from_arrays(DATA).filter(lambda batch: batch["label"] in (1, 2))
    assert "receives arrays of 12 rows, not single rows" in raised.value.__notes__[0]


@pytest.mark.parametrize("pipeline", [fb.from_arrays(DATA), fb.from_generator(lambda: [{"x": 1, "label": 2}])])
def test_stored_rows_cannot_be_filtered_after_a_map(pipeline):
    with pytest.raises(PipelineError, match=r"filter\(\) reads the stored rows, but map.*Call filter\(\) first"):
        pipeline.map(lambda row: row).filter(lambda batch: batch["label"] > 1)


def test_groups_and_classes_of_a_field_cannot_be_read_after_a_map():
    mapped = fb.from_arrays(DATA).map(fb.cast({"label": "float32"}))
    with pytest.raises(PipelineError, match=r"split\(by=...\) reads the stored rows"):
        mapped.split(0.5, 0.5, by="label")
    with pytest.raises(PipelineError, match=r"sample\(balance=...\) reads the stored rows"):
        mapped.sample(balance="label")
    assert len(mapped.split(0.5, 0.5, by=DATA["label"])) == 2


def test_a_field_that_only_a_map_makes_has_to_be_added_to_the_source():
    mapped = fb.from_arrays(np.array(["a.npz", "b.npz"])).map(lambda path: {"label": 1})
    with pytest.raises(PipelineError, match=r"no stored field is named 'label': map.* changes rows later\."):
        mapped.sample(balance="label")
    with pytest.raises(PipelineError, match=r"add 'label' to the source, such as from_arrays"):
        mapped.split(0.5, 0.5, by="label")


def test_two_fields_with_one_name_are_refused():
    twins = fb.from_arrays({"a": {"b": np.arange(3)}, "a.b": np.arange(3)})
    with pytest.raises(PipelineError, match=r"found several fields named 'a\.b'"):
        twins.filter(lambda field: field > 1, fields="a.b")
