"""Transforms: maps, cast, scale, one_hot and padding, in threads and in worker processes."""

import numpy as np
import pytest

import forebay as fb
from forebay.errors import PipelineError, SpecError, TransformError


def all_batches(pipeline, **options):
    with pipeline.feed("numpy", **options) as feed:
        return list(feed)


def images(rows=40):
    return {"image": np.arange(rows * 12, dtype=np.uint8).reshape(rows, 2, 2, 3), "label": np.arange(rows) % 10}


def add_one(batch):
    return batch + 1


def add_noise(batch, rng):
    return batch + rng.random(batch.shape)


def add_noise_to_x(batch, rng):
    return {"x": batch["x"] + rng.random(batch["x"].shape, dtype="f4"), "y": batch["y"]}


def halve(batch):
    return {"x": batch["x"], "y": batch["y"] / 2}


def refuse(batch):
    raise KeyError("no such thing")


def test_a_map_after_batch_receives_batches():
    shapes = []
    all_batches(fb.from_arrays(np.zeros((10, 3))).batch(4).map(lambda batch: shapes.append(batch.shape) or batch))
    assert set(shapes) == {(4, 3), (2, 3)}


def test_a_map_before_batch_receives_rows():
    batches = all_batches(fb.from_arrays(np.arange(10)).map(lambda row: row * 2).batch(4))
    assert [batch.tolist() for batch in batches] == [[0, 2, 4, 6], [8, 10, 12, 14], [16, 18]]


def test_changes_of_shape_dtype_and_tree_are_inferred_from_sample_rows():
    pipeline = (
        fb.from_arrays(np.arange(12.0).reshape(6, 2))
        .batch(4)
        .map(lambda x: {"sum": x.sum(1).astype("f4"), "x": x[:, None]})
    )
    with pipeline.feed("numpy") as feed:
        assert [str(spec) for spec in feed.specs] == ["float32[]", "float64[1, 2]"]
        assert [batch["sum"].tolist() for batch in feed] == [[1, 5, 9, 13], [17, 21]]


@pytest.mark.slow
@pytest.mark.parametrize("where", ["thread", "process"])
def test_threads_and_processes_return_the_same_batches(where):
    batches = all_batches(fb.from_arrays(np.arange(100)).shuffle(seed=1).batch(7).map(add_one, where=where))
    plain = all_batches(fb.from_arrays(np.arange(100)).shuffle(seed=1).batch(7))
    assert [batch.tolist() for batch in batches] == [(batch + 1).tolist() for batch in plain]


@pytest.mark.slow
def test_random_numbers_do_not_depend_on_worker_processes_or_the_budget():
    pipeline = fb.from_arrays(np.zeros(50)).shuffle(seed=1).batch(7)
    runs = [
        all_batches(pipeline.map(add_noise)),
        all_batches(pipeline.map(add_noise, where="process")),
        all_batches(pipeline.map(add_noise), host_bytes="4MB"),
    ]
    rows = [np.concatenate(run).tolist() for run in runs]
    assert rows[0] == rows[1] == rows[2]
    assert len(set(rows[0])) == 50


@pytest.mark.slow
def test_several_batches_per_task_equal_those_of_one_thread():
    pipeline = fb.from_arrays({"x": np.zeros((2003, 3), "f4"), "y": np.arange(2003)}).shuffle(seed=1).batch(4)
    mapped = [
        pipeline.map(add_noise_to_x),
        pipeline.map(add_noise_to_x, where="process"),
        pipeline.map(halve).map(add_noise_to_x, where="process"),
    ]
    with mapped[1].feed("numpy") as feed:
        assert feed.plan.group_batches > 1
    runs = [all_batches(made) for made in mapped]
    for in_thread, in_process, halved in zip(*runs, strict=True):
        assert in_thread["x"].tolist() == in_process["x"].tolist()
        assert in_thread["y"].tolist() == in_process["y"].tolist() == (halved["y"] * 2).tolist()
    assert len(runs[0][-1]["y"]) == 3


def test_random_numbers_are_the_same_after_a_resume():
    pipeline = fb.from_arrays(np.zeros(50)).shuffle(seed=1).batch(7).map(add_noise)
    with pipeline.feed("numpy") as feed, pipeline.feed("numpy") as other:
        iterator = iter(feed)
        next(iterator)
        other.load_state_dict(feed.state_dict())
        assert [batch.tolist() for batch in iterator] == [batch.tolist() for batch in other]


def test_a_map_may_keep_its_input():
    kept = []
    all_batches(fb.from_arrays(np.arange(100)).batch(10).map(lambda batch: kept.append(batch) or batch))
    assert len(kept) == 11  # one call for the sample rows
    assert all(batch.tolist() == list(range(batch[0], batch[0] + 10)) for batch in kept)


def test_cast_scale_and_one_hot_change_the_named_fields():
    pipeline = fb.from_arrays(images()).map(fb.scale({"image": 1 / 255})).map(fb.one_hot({"label": 10})).batch(8)
    for batch in all_batches(pipeline):
        assert batch["image"].dtype == np.float32
        assert batch["label"].shape == (len(batch["label"]), 10)
    first = all_batches(pipeline)[0]
    assert np.allclose(first["image"], images()["image"][:8] / 255)
    assert first["label"].argmax(1).tolist() == images()["label"][:8].tolist()


def test_a_cast_without_a_field_casts_all_fields():
    batch = all_batches(fb.from_arrays((np.arange(4), np.arange(4.0))).map(fb.cast("int16")).batch(4))[0]
    assert [leaf.dtype for leaf in batch] == [np.int16, np.int16]


def test_the_error_of_one_hot_names_a_class_outside_the_range():
    with pytest.raises(TransformError, match=r"'label' contains 5, outside 0\.\.4"):
        all_batches(fb.from_arrays(images()).map(fb.one_hot({"label": 5})).batch(8))


def test_the_error_names_an_unknown_field():
    with pytest.raises(SpecError, match=r"names 'picture', but the fields are 'image', 'label'"):
        all_batches(fb.from_arrays(images()).map(fb.cast({"picture": "f4"})).batch(8))


def test_a_map_that_returns_the_wrong_length_is_refused():
    with pytest.raises(TransformError, match=r"map\(.*<lambda>\) returned 3 rows in 'array' for a batch of 4 rows"):
        all_batches(fb.from_arrays(np.arange(10)).batch(4).map(lambda batch: batch[:3]))


def test_a_map_whose_result_changes_its_dtype_is_refused_with_both_specs():
    def float_from_row_5(batch):
        return batch.astype("f4") if batch[0] > 4 else batch

    with pytest.raises(
        TransformError,
        match=r"returned 4 rows of float32\[\] in 'array' for a batch of 4 rows; the sample rows have int64\[\]",
    ) as caught:
        all_batches(fb.from_arrays(np.arange(20)).batch(4).map(float_from_row_5))
    assert any("position 8 of epoch 0" in note for note in caught.value.__notes__)


def test_the_error_for_a_missing_key_names_the_fields_that_the_map_receives():
    rows = fb.from_arrays({"x": np.zeros(4), "label": np.arange(4)})
    with pytest.raises(KeyError) as caught:
        next(rows.map(lambda row: row["image"]).batch(2).feed("numpy"))
    assert any(note.endswith(", which receives x, label") for note in caught.value.__notes__)


def swap_fields(batch):
    return {"a": batch, "b": -batch} if batch[0] % 8 == 0 else {"b": -batch, "a": batch}


def swap_fields_of_row(row):
    return {"a": row, "b": -row} if row % 2 == 0 else {"b": -row, "a": row}


@pytest.mark.slow
def test_fields_returned_in_another_order_are_matched_by_name():
    for pipeline in (
        fb.from_arrays(np.arange(16)).batch(4).map(swap_fields),
        fb.from_arrays(np.arange(16)).batch(4).map(swap_fields, where="process"),
        fb.from_arrays(np.arange(16)).map(swap_fields_of_row).batch(4),
    ):
        batches = all_batches(pipeline)
        assert np.concatenate([batch["a"] for batch in batches]).tolist() == list(range(16))
        assert np.concatenate([batch["b"] for batch in batches]).tolist() == [-row for row in range(16)]


@pytest.mark.parametrize("other", [lambda batch: {"z": batch}, lambda batch: (batch,), lambda batch: batch])
def test_a_map_that_returns_a_different_tree_is_refused(other):
    with pytest.raises(TransformError, match="a different tree than before"):
        all_batches(
            fb.from_arrays(np.arange(16)).batch(4).map(lambda batch: {"a": batch} if batch[0] == 0 else other(batch))
        )


def test_each_shard_has_its_own_random_numbers():
    shards = [all_batches(fb.from_arrays(np.zeros(8)).shard(index, 2).batch(2).map(add_noise)) for index in range(2)]
    rows = [row for shard in shards for batch in shard for row in batch.tolist()]
    assert len(set(rows)) == 8


@pytest.mark.parametrize("where", ["thread", "process"])
def test_an_error_in_a_map_keeps_its_type(where):
    with pytest.raises(KeyError, match="no such thing"):
        all_batches(fb.from_arrays(np.arange(10)).batch(4).map(refuse, where=where))


def test_an_unknown_where_is_refused():
    with pytest.raises(PipelineError, match="where='gpu'"):
        fb.from_arrays(np.arange(10)).batch(4).map(add_one, where="gpu")


def test_a_map_on_a_device_needs_a_framework():
    with pytest.raises(PipelineError, match="batches go to the CPU, where numpy cannot run it"):
        fb.from_arrays(np.arange(10)).batch(4).map(add_one, where="device").feed("numpy")


def test_a_map_that_returns_python_objects_is_refused():
    with pytest.raises(SpecError, match="Python objects"):
        all_batches(fb.from_arrays(np.arange(10)).batch(4).map(lambda batch: np.array([None] * len(batch))))


# Rows of different shape


def sentences():
    return [np.arange(length, dtype=np.int32) for length in (3, 1, 4, 1, 5)]


def test_ragged_rows_of_a_generator_are_padded_to_the_longest_of_their_batch():
    batches = all_batches(fb.from_generator(sentences).batch(2, pad=-1))
    assert [batch.tolist() for batch in batches] == [
        [[0, 1, 2], [0, -1, -1]],
        [[0, 1, 2, 3], [0, -1, -1, -1]],
        [[0, 1, 2, 3, 4]],
    ]


def test_ragged_rows_of_a_list_are_padded():
    batches = all_batches(fb.from_source(sentences()).batch(3, pad=0))
    assert [batch.shape for batch in batches] == [(3, 4), (2, 5)]


def test_rows_of_different_shapes_from_a_map_are_padded():
    batches = all_batches(fb.from_arrays(np.array([1, 3, 2])).map(lambda n: np.ones(n)).batch(3, pad=9))
    assert batches[0].tolist() == [[1, 9, 9], [1, 1, 1], [1, 1, 9]]


@pytest.mark.parametrize(("pad", "dtype"), [(float("nan"), "i8"), (-1, "u1"), (300, "u1"), ("x", "f4")])
def test_a_pad_value_outside_the_dtype_is_refused(pad, dtype):
    rows = [np.zeros(length, dtype) for length in (1, 2)]
    with pytest.raises(SpecError, match=r"'array' is .* and cannot store"):
        all_batches(fb.from_source(rows).batch(2, pad=pad))


def test_padded_rows_of_another_dtype_are_refused():
    rows = [np.zeros(1, "i8"), np.zeros(2, "i8"), np.zeros(1, "f8")]
    with pytest.raises(SpecError, match=r"float64.*int64|expected int64"):
        all_batches(fb.from_generator(lambda: iter(rows)).batch(1, pad=0))


def test_padding_one_pipeline_does_not_affect_another_of_the_same_generator():
    pipeline = fb.from_generator(sentences)
    all_batches(pipeline.batch(2, pad=0))
    with pytest.raises(SpecError, match="row 1"):
        all_batches(pipeline.batch(2))


@pytest.mark.parametrize("verb", [lambda p: p.take(3), lambda p: p.repeat(2), lambda p: p.shuffle(seed=0, window=64)])
def test_padding_needs_rows_directly_from_the_generator(verb):
    with pytest.raises(PipelineError, match="directly from the generator"):
        all_batches(verb(fb.from_generator(sentences)).batch(2, pad=0))


def test_a_ragged_spec_without_padding_is_refused():
    with pytest.raises(PipelineError, match=r"batch\(n, pad=0\)"):
        all_batches(fb.from_generator(sentences, spec=fb.ArraySpec((None,), "int32")).batch(2))


def test_the_error_for_ragged_rows_without_padding_suggests_pad():
    with pytest.raises(SpecError, match=r"batch\(..., pad=0\)"):
        all_batches(fb.from_source(sentences()).batch(3))


def test_the_error_of_a_map_that_uses_rng_as_a_key_of_jax_gives_a_remedy():
    def draw(row, rng):
        raise TypeError(f"unexpected PRNG key type {type(rng)}")  # the error of JAX 0.10

    with pytest.raises(TypeError, match="PRNG key") as caught:
        fb.from_arrays(np.arange(4)).map(draw).batch(2).feed("numpy")
    assert any("Write rng.normal(...)." in note for note in caught.value.__notes__)
