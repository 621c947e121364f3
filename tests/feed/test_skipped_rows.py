"""Maps with on_error="skip": other rows of the batch replace rows that fail."""

import gc
import json
import logging
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import forebay as fb
from forebay.errors import PipelineError, TransformError
from forebay.testing import SimulatedEngine

BAD = frozenset({0, 5, 6, 17, 40})


def refuse_bad(row):
    if int(row) in BAD:
        raise ValueError(f"row {row} is bad")
    return {"row": row, "double": row * 2.0}


def refuse_all(row):
    raise KeyError("always")


def identity(row):
    return row


def numbers(rows=48):
    return fb.from_arrays(np.arange(rows))


def skip_errors(pipeline, where="thread", max_errors=1.0, function=refuse_bad):
    return pipeline.map(function, where=where, on_error="skip", max_errors=max_errors)


def row_numbers_of(feed):
    return [batch["row"].tolist() for batch in feed]


def replace_bad_rows(batch):
    """Return the rows of a batch as a feed that skips must deliver them."""
    good = [place for place, row in enumerate(batch) if row not in BAD]
    return [batch[min(good, key=lambda other: (abs(other - place), other))] for place in range(len(batch))]


@given(batch=st.integers(4, 20), seed=st.integers(0, 50), shards=st.integers(1, 3), steps=st.integers(0, 2))
def test_batches_have_replaced_rows_after_a_resume_and_on_every_shard(batch, seed, shards, steps):
    for index in range(shards):
        plain = numbers().shuffle(seed=seed).shard(index, shards).batch(batch)
        good = numbers().shuffle(seed=seed).shard(index, shards)
        with plain.feed("numpy") as feed:
            expected = [rows.tolist() for rows in feed]
        if any(set(rows) <= BAD for rows in expected):
            continue  # a batch without a good row
        with (
            skip_errors(good).batch(batch).feed("numpy") as feed,
            skip_errors(good).batch(batch).feed("numpy") as other,
        ):
            first = [next(feed)["row"].tolist() for _ in range(min(steps, len(feed) - 1))]
            other.load_state_dict(json.loads(json.dumps(feed.state_dict())))
            assert first + row_numbers_of(other) == [replace_bad_rows(rows) for rows in expected]


def test_all_fields_of_a_row_are_replaced_together():
    with skip_errors(numbers()).batch(8).feed("numpy") as feed:
        for batch in feed:
            assert (batch["row"] * 2.0).tolist() == batch["double"].tolist()


@pytest.mark.slow
@pytest.mark.parametrize("where", ["thread", "process"])
def test_threads_and_processes_skip_name_and_count_the_same_rows(where):
    pipeline = numbers().shuffle(seed=1)
    with skip_errors(pipeline, where).batch(8).feed("numpy") as feed, pipeline.batch(8).feed("numpy") as plain:
        assert row_numbers_of(feed) == [replace_bad_rows(rows.tolist()) for rows in plain]
        stats, text = feed.stats()["skipped_rows"], feed.explain()
    assert (stats["count"], stats["received_rows"]) == (5, 48)
    assert {first["row"] for first in stats["first"]} == BAD
    for first in stats["first"]:
        assert first == {
            "map": "map(refuse_bad, rows)",
            "row": first["row"],
            "error": f"ValueError: row {first['row']} is bad",
        }
    assert "skipped: 5 of 48 rows" in text
    assert "rows that fail are replaced, up to 100 % of all rows" in text


@pytest.mark.slow
def test_a_worker_process_with_several_batches_per_task_names_the_rows():
    bad = numbers(2003).shuffle(seed=2)
    with skip_errors(bad, "process").batch(4).feed("numpy") as feed:
        assert feed.plan.group_batches > 1
        row_numbers_of(feed)
        assert {first["row"] for first in feed.stats()["skipped_rows"]["first"]} == BAD


@pytest.mark.slow
def test_rows_that_a_map_in_threads_skips_before_a_map_in_processes_are_counted_once():
    pipeline = skip_errors(numbers().shuffle(seed=1)).map(identity, where="process").batch(8)
    with pipeline.feed("numpy") as feed:
        row_numbers_of(feed)
        assert feed.stats()["skipped_rows"]["count"] == len(BAD)


def test_repeated_rows_are_named_by_their_row_number():
    with skip_errors(numbers(10).repeat(2)).batch(5).feed("numpy") as feed:
        row_numbers_of(feed)
        assert [first["row"] for first in feed.stats()["skipped_rows"]["first"]] == [0, 5, 6, 0, 5]
        assert feed.stats()["skipped_rows"]["count"] == 6


def test_rows_of_a_stream_are_named_by_their_position():
    stream = fb.from_generator(lambda: iter(np.arange(48)))
    with skip_errors(stream.shard(1, 2)).batch(6).feed("numpy") as feed:
        row_numbers_of(feed)
        assert [first["row"] for first in feed.stats()["skipped_rows"]["first"]] == [5, 17]


@pytest.mark.slow
@pytest.mark.parametrize("where", ["thread", "process"])
def test_padded_batches_have_replaced_rows(where):
    with skip_errors(numbers(), where).batch(8, pad=0).feed("numpy") as feed:
        assert row_numbers_of(feed) == [replace_bad_rows(list(range(start, start + 8))) for start in range(0, 48, 8)]
        assert feed.stats()["skipped_rows"]["count"] == len(BAD)


def test_a_device_receives_replaced_rows():
    engine = SimulatedEngine(bytes_per_second=1e9, latency_seconds=1e-6)
    with skip_errors(numbers()).batch(8).feed("numpy", device=engine) as feed:
        assert row_numbers_of(feed) == [replace_bad_rows(list(range(start, start + 8))) for start in range(0, 48, 8)]


def test_a_row_that_fails_does_not_change_the_random_numbers_of_the_others():
    def draw(row, rng):
        number = rng.random()
        if int(row) in BAD:
            raise ValueError("bad")
        return {"row": row, "drawn": number}

    def draw_all(row, rng):
        return {"row": row, "drawn": rng.random()}

    with skip_errors(numbers(), function=draw).batch(8).feed("numpy") as feed:
        drawn = {row: number for batch in feed for row, number in zip(*batch.values(), strict=True)}
    with numbers().map(draw_all).batch(8).feed("numpy") as feed:
        expected = {row: number for batch in feed for row, number in zip(*batch.values(), strict=True)}
    assert drawn == {row: number for row, number in expected.items() if int(row) not in BAD}


@pytest.mark.slow
@pytest.mark.parametrize("where", ["thread", "process"])
def test_a_batch_without_a_good_row_raises_and_the_state_is_before_it(where):
    rows = np.array([1, 2, 3, 4, 5, 6, 7, 8])
    with skip_errors(fb.from_arrays(rows), where).batch(2).feed("numpy") as feed:
        batches = [next(feed)["row"].tolist() for _ in range(2)]
        with pytest.raises(TransformError, match=r"failed for all 2 rows of a batch.*ValueError: row 5 is bad"):
            next(feed)
        assert batches == [[1, 2], [3, 4]]
        assert feed.state_dict()["position"] == 4


def test_the_first_batch_may_begin_with_a_bad_row():
    with skip_errors(numbers()).batch(3).feed("numpy") as feed:
        assert [str(spec) for spec in feed.specs] == ["int64[]", "float64[]"]
        assert next(feed)["row"].tolist() == [1, 1, 2]
        assert feed.stats()["skipped_rows"]["count"] == 1  # the call that inferred the specs does not count


def test_a_first_batch_of_which_all_rows_fail_is_an_error_when_the_feed_starts():
    with pytest.raises(TransformError, match="failed for all 4 rows"):
        skip_errors(numbers(), function=refuse_all).batch(4).feed("numpy")


def test_more_errors_than_max_errors_raise_with_the_count_and_the_first_error():
    with skip_errors(numbers(), max_errors=0.003).batch(8).feed("numpy") as feed:
        next(feed)
        next(feed)
        with pytest.raises(TransformError, match=r"failed for 4 of 24 rows.*max_errors=0\.003.*row 0: ValueError"):
            next(feed)
        assert feed.state_dict()["position"] == 16


def test_max_errors_counts_the_rows_of_all_epochs():
    pipeline = numbers(600).map(refuse_bad, on_error="skip", max_errors=0.006).batch(50)
    with pipeline.feed("numpy") as feed:
        assert len(row_numbers_of(feed)) == 12  # 5 of 600 rows failed, which counts as 5 of 1000
        with pytest.raises(TransformError, match=r"failed for 10 of 650 rows"):
            row_numbers_of(feed)


def test_two_maps_have_their_own_counts_and_limits():
    def refuse_late(row):
        if row["row"] == 30:
            raise KeyError("late")
        return row

    first = skip_errors(numbers(), max_errors=0.5)
    with first.map(refuse_late, on_error="skip", max_errors=0.001).batch(8).feed("numpy") as feed:
        row_numbers_of(feed)
        stats = feed.stats()["skipped_rows"]
    assert stats["count"] == 6
    assert stats["first"][-1]["row"] == 30
    assert "refuse_late" in stats["first"][-1]["map"]


def test_a_feed_without_skipped_rows_says_nothing_about_them(caplog):
    with caplog.at_level(logging.WARNING), numbers().map(identity).batch(8).feed("numpy") as feed:
        list(feed)
        assert "skipped_rows" not in feed.stats()
    with skip_errors(numbers(), function=identity).batch(8).feed("numpy") as feed:
        list(feed)
        assert feed.stats()["skipped_rows"] == {"count": 0, "received_rows": 48, "first": []}
        assert "skipped:" not in feed.explain()
    assert not caplog.records


class Image:
    """An object of a map, which the traceback of an error refers to."""


def test_errors_of_skipped_rows_keep_no_object_of_the_map_alive():
    images = weakref.WeakSet()

    def decode(row):
        image = Image()
        images.add(image)
        return refuse_bad(row)

    gc.disable()  # so that a cycle of references stays
    try:
        with skip_errors(numbers(), function=decode).batch(8).feed("numpy") as feed:
            row_numbers_of(feed)
        assert len(images) == 0
    finally:
        gc.enable()


class Abort(BaseException):
    """An exception that is not an Exception, like KeyboardInterrupt."""


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt, SystemExit, Abort])
def test_exceptions_that_end_a_program_are_never_skipped(error):
    def fail(row):
        if row == 20:
            raise error("stop")
        return {"row": row}

    with skip_errors(numbers(), function=fail).batch(8).feed("numpy") as feed, pytest.raises(error):
        row_numbers_of(feed)


def return_none_for_bad(row):
    return None if int(row) in BAD else row


def change_the_tree(row):
    return {"a": row} if int(row) in BAD else row


@pytest.mark.parametrize("function", [return_none_for_bad, change_the_tree])
def test_a_wrong_result_is_not_skipped(function):
    with pytest.raises(TransformError):
        list(skip_errors(numbers(), function=function).batch(8).feed("numpy"))


@pytest.mark.parametrize(
    "make",
    [
        lambda: numbers().batch(4).map(identity, on_error="skip"),
        lambda: numbers().map(fb.cast("f4"), on_error="skip"),
        lambda: numbers().map(identity, where="device", on_error="skip"),
        lambda: fb.from_batches([np.arange(4)]).map(identity, on_error="skip"),
    ],
)
def test_maps_on_batches_cannot_skip_rows(make):
    with pytest.raises(PipelineError, match=r"receives whole batches.*before batch\(\)"):
        make()


@pytest.mark.parametrize("max_errors", [-0.1, 1.1, float("nan"), True, "0.1"])
def test_a_limit_that_is_no_share_is_refused(max_errors):
    with pytest.raises(PipelineError, match="from 0 to 1"):
        numbers().map(identity, on_error="skip", max_errors=max_errors)


def test_a_limit_without_on_error_is_refused():
    with pytest.raises(PipelineError, match=r"map\(max_errors=0.001\) needs on_error='skip'"):
        numbers().map(identity, max_errors=0.001)


def test_an_unknown_on_error_is_refused():
    with pytest.raises(PipelineError, match="'raise' or 'skip'"):
        numbers().map(identity, on_error="ignore")


def test_without_on_error_a_failing_row_ends_the_feed():
    pipeline = numbers().take(40).map(lambda row: row + 1).map(refuse_bad).batch(4)
    with pipeline.feed("numpy") as feed, pytest.raises(ValueError, match="row 5 is bad"):
        row_numbers_of(feed)
