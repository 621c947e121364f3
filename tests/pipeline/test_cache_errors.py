"""`cache()` refuses what it cannot keep."""

import numpy as np
import pytest
from tests.pipeline.cached_rows import IMAGES, RaggedRows, square
from tests.pipeline.row_pipelines import BATCHES, STREAM, TEN
from tests.support.received import rows_of

import forebay as fb
from forebay.errors import PipelineError


@pytest.mark.parametrize(
    ("pipeline", "message"),
    [
        (TEN.map(lambda row, rng: row), "draws random numbers.*Call this map after cache"),
        (IMAGES.map(fb.flip()), "flip.*draws random numbers.*Call this map after cache"),
        (TEN.map(square, on_error="skip"), "on_error='skip', which replaces a row"),
        (TEN.map(square, where="process"), "where='process'.*worker threads"),
        (TEN.map(square, where="ray"), "where='ray'.*worker threads"),
        (TEN.map(square, where="device"), "where='device'.*worker threads"),
        (TEN.batch(3), r"batch\(3\) comes before cache\(\)"),
        (STREAM, "a stream and ready-made batches have none"),
        (BATCHES, "a stream and ready-made batches have none"),
        (fb.from_source(RaggedRows()), "differs in length"),
    ],
)
def test_what_cannot_be_cached_is_refused(pipeline, message):
    with pytest.raises(PipelineError, match=message):
        pipeline.cache("1MB")


@pytest.mark.parametrize("where", ["", "  ", "0", "-1GB", "8 XB", 0, -1, True, None, 1.5j, b"rows"])
def test_a_wrong_place_is_refused(where):
    with pytest.raises(PipelineError, match="neither a number of bytes nor a folder"):
        TEN.cache(where)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"where": "folder", "path": "other"}, "got two folders"),
        ({"where": "1MB", "path": 3}, "pass the path of a folder"),
        ({"where": "s3://bucket/rows"}, "is a URL"),
        ({"where": "1MB", "version": "2"}, "this cache is in RAM"),
        ({"where": "folder", "version": 2}, "pass a text"),
        ({"where": 7}, "holds no row: one row takes 8 B"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PipelineError, match=message):
        TEN.cache(**arguments)
    assert list(tmp_path.iterdir()) == []


def test_more_than_the_memory_of_the_machine_is_refused():
    rows = fb.from_arrays(np.zeros(1 << 24)).map(lambda row: np.broadcast_to(row, (1 << 20,)))
    with pytest.raises(PipelineError, match="but this machine has"):
        rows.cache("9999TB")


def test_a_map_with_rows_of_another_shape_is_an_error():
    with (
        TEN.map(lambda row: np.zeros(int(row) // 9)).cache("1MB").batch(5).feed("numpy") as feed,
        pytest.raises(fb.ForebayError, match=r"differ|shape"),
    ):
        rows_of(feed)
