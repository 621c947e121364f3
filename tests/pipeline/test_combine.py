"""Combined pipelines: the rows of a NumPy model, on any shards and after any resume."""

from itertools import zip_longest

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from tests.pipeline.combined_pipelines import PAIR, ROWS, epoch_of, resume_feed
from tests.support.received import rows_of

import forebay as fb
from forebay.errors import PipelineError, SpecError
from forebay.pipeline.combine import concat, interleave, zip_rows
from forebay.pipeline.ray_request import _row_delivery


@st.composite
def simple_pipelines(draw, first=0):
    """Draw a pipeline over the numbers from `first` on."""
    pipeline = fb.from_arrays(np.arange(first, first + draw(st.integers(1, 40))))
    if draw(st.booleans()):
        block = draw(st.none() | st.integers(1, 9))
        pipeline = pipeline.shuffle(seed=draw(st.integers(0, 9)), block=block)
    if draw(st.booleans()):
        pipeline = pipeline.take(draw(st.integers(1, 30)))
    return pipeline.repeat(2) if draw(st.booleans()) else pipeline


@st.composite
def nested_combinations(draw, depth=2):
    """Draw a combined pipeline, with other combined pipelines inside, and methods after it."""
    kind = draw(st.sampled_from(["plain", "concat", "interleave"] if depth else ["plain"]))
    if kind == "plain":
        return draw(simple_pipelines(first=100 * draw(st.integers(0, 9))))
    parts = draw(st.lists(nested_combinations(depth=depth - 1), min_size=2, max_size=3))
    if kind == "concat":
        made = concat(*parts)
    else:
        weights = draw(st.lists(st.integers(1, 5), min_size=len(parts), max_size=len(parts)))
        stop, seed = draw(st.sampled_from(["first", "all", 50])), draw(st.none() | st.integers(0, 5))
        made = interleave(*parts, weights=weights, stop=stop, seed=seed)
    change = draw(st.sampled_from([None, "shuffle", "take", "repeat"]))
    if change is None:
        return made
    return {"shuffle": made.shuffle(seed=3), "take": made.take(17), "repeat": made.repeat(2)}[change]


@given(first=simple_pipelines(), second=simple_pipelines(first=100), epoch=st.integers(0, 3))
def test_concat_has_the_rows_of_the_first_pipeline_then_the_rows_of_the_second(first, second, epoch):
    assert epoch_of(concat(first, second), epoch) == epoch_of(first, epoch) + epoch_of(second, epoch)


@given(lengths=st.lists(st.integers(1, 40), min_size=2, max_size=4), seed=st.integers(0, 9))
def test_a_shuffled_concat_is_the_shuffle_of_one_array(lengths, seed):
    arrays = np.split(np.arange(sum(lengths)), np.cumsum(lengths)[:-1])
    shuffled = concat(*map(fb.from_arrays, arrays)).shuffle(seed=seed)
    assert epoch_of(shuffled, 2) == epoch_of(fb.from_arrays(np.arange(sum(lengths))).shuffle(seed=seed), 2)


@given(first=simple_pipelines(), second=simple_pipelines(first=100), seed=st.none() | st.integers(0, 5))
def test_interleaved_pipelines_keep_their_own_orders_and_counts(first, second, seed):
    mixed = epoch_of(interleave(first, second, weights=(3, 2), seed=seed))
    rows, others = [row for row in mixed if row < 100], [row for row in mixed if row >= 100]
    assert rows == epoch_of(first)[: len(rows)]
    assert others == epoch_of(second)[: len(others)]
    assert len(rows) == len(epoch_of(first)) or len(others) == len(epoch_of(second))


@given(lengths=st.tuples(st.integers(1, 40), st.integers(1, 40)), seed=st.none() | st.integers(0, 5))
def test_stop_all_yields_every_row_of_every_pipeline(lengths, seed):
    first, second = np.arange(lengths[0]), np.arange(100, 100 + lengths[1])
    pipelines = [fb.from_arrays(first).shuffle(seed=1), fb.from_arrays(second)]
    mixed = epoch_of(interleave(*pipelines, weights=(0.25, 0.75), stop="all", seed=seed))
    assert set(mixed) == {*first.tolist(), *second.tolist()}


@given(pipeline=nested_combinations(), shards=st.integers(2, 4))
def test_shards_of_a_combined_pipeline_have_all_of_its_rows(pipeline, shards):
    pipeline = pipeline.repeat(4)  # at least one row for each shard
    parts = [rows_of(pipeline.shard(index, shards).batch(1).feed("numpy")) for index in range(shards)]
    steps = zip_longest(*parts)
    assert [row for step in steps for row in step if row is not None] == epoch_of(pipeline)


@given(pipeline=nested_combinations(), counts=st.tuples(st.integers(1, 3), st.integers(1, 3)), part=st.floats(0, 0.9))
def test_a_combined_pipeline_resumes_in_mid_epoch_on_another_number_of_shards(pipeline, counts, part):
    pipeline = concat(pipeline.repeat(4), fb.from_arrays(np.arange(5000, 5009)))  # at least one row for each shard

    def shards(count):
        return [pipeline.shard(index, count).batch(1) for index in range(count)]

    feeds = [shard.feed("numpy") for shard in shards(counts[0])]
    steps = int(part * (pipeline.order.length - 9) / counts[0])
    seen = [row for feed in feeds for _, batch in zip(range(steps), feed, strict=False) for row in batch.tolist()]
    for shard in shards(counts[1]):
        seen += rows_of(resume_feed(shard, feeds[0].state_dict()))
    assert sorted(seen) == sorted(epoch_of(pipeline))


@pytest.mark.slow
@given(pipeline=nested_combinations(), position=st.integers(0, 200))
def test_a_combined_pipeline_resumes_at_any_position_with_the_same_rest(pipeline, position):
    rows = epoch_of(pipeline, 1)
    position %= len(rows)
    feed = pipeline.batch(3).feed("numpy")
    with resume_feed(pipeline.batch(3), feed.state_dict() | {"epoch": 1, "position": position}) as other:
        assert rows_of(other) == rows[position:]


def test_weights_are_shares_of_any_prefix():
    parts = [fb.from_arrays(np.full(10_000, number)) for number in range(3)]
    rows = np.array(epoch_of(interleave(*parts, weights=(0.5, 0.3, 0.2))))
    assert np.bincount(rows).tolist() == [10_000, 6_000, 4_000]
    prefix = np.arange(1, len(rows) + 1)
    for number, share in enumerate((0.5, 0.3, 0.2)):
        assert np.abs(np.cumsum(rows == number) - prefix * share).max() <= 5


def test_pipelines_of_one_source_use_the_source_once(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(100))
    rows = fb.from_files(tmp_path / "x.npy")
    twice = interleave(rows.take(10), rows.shuffle(seed=1), weights=(1, 1), stop=20)
    assert twice.source is rows.source
    assert twice.file_recipe is rows.file_recipe
    assert set(range(10)) < set(epoch_of(twice))
    other = fb.from_arrays(np.arange(100, 120))
    assert len(concat(rows, other, rows.shuffle(seed=1)).source) == 120
    assert epoch_of(concat(rows.take(2), other.take(1), rows.take(1))) == [0, 1, 100, 0]
    assert concat(rows, other).file_recipe is None


def test_combining_one_pipeline_does_not_change_it():
    one = fb.from_arrays(np.arange(5)).shuffle(seed=1)
    assert concat(one) is one
    assert zip_rows(one) is one
    assert epoch_of(interleave(one)) == epoch_of(one)


def test_zipped_dicts_are_merged():
    x, y, z = np.arange(12).reshape(6, 2), np.arange(6) * 10, np.arange(6) * 100
    zipped = zip_rows(fb.from_arrays({"x": x}), fb.from_arrays({"y": y}), fb.from_arrays({"z": z})).shuffle(seed=2)
    for batch in zipped.batch(4).feed("numpy"):
        assert batch["y"].tolist() == (batch["x"][:, 0] * 5).tolist() == (batch["z"] // 10).tolist()


def test_zipped_rows_that_are_not_all_dicts_become_tuples():
    x, y = np.arange(5), np.arange(5) * 2
    (batch,) = zip_rows(fb.from_arrays(x), fb.from_arrays({"y": (y, y)})).batch(5).feed("numpy")
    assert (batch[0].tolist(), batch[1]["y"][1].tolist()) == (x.tolist(), y.tolist())


@given(lengths=st.tuples(st.integers(5, 30), st.integers(5, 30)), seed=st.integers(0, 5), epoch=st.integers(0, 3))
def test_zipped_rows_belong_together_in_any_order(lengths, seed, epoch):
    first, second = (fb.from_arrays(np.arange(length)).take(5) for length in lengths)
    pipelines = [
        zip_rows(first, second).shuffle(seed=seed),
        zip_rows(first.take(5).repeat(2), first.take(5).repeat(2)),
        zip_rows(first.shuffle(seed=seed), first.shuffle(seed=seed)),
        zip_rows(concat(first, second), concat(first, second)),
    ]
    for pipeline in pipelines:
        with pipeline.batch(3).feed("numpy") as feed:
            feed.set_epoch(epoch)
            assert all(batch[0].tolist() == batch[1].tolist() for batch in feed)


def test_rows_that_differ_in_length_are_padded():
    first, second = ([np.arange(length) for length in lengths] for lengths in ((3, 1), (3, 2)))
    padded = concat(fb.from_source(first), fb.from_source(second)).batch(4, pad=-1).feed("numpy")
    assert next(padded).tolist() == [[0, 1, 2], [0, -1, -1], [0, 1, 2], [0, 1, -1]]


def test_maps_receive_combined_rows():
    mixed = interleave(fb.from_arrays(np.arange(4)), fb.from_arrays(np.arange(10, 14))).map(lambda row: row * 2)
    assert sorted(epoch_of(mixed)[:4]) == [0, 2, 20, 22]


def test_numpy_numbers_are_accepted():
    mixed = interleave(ROWS, ROWS, weights=np.array([0.75, 0.25], np.float32), stop=np.int64(4), seed=np.int32(1))
    assert mixed.order.weights == (3, 1)
    assert len(epoch_of(mixed)) == 4


def test_explain_names_the_parts_and_their_orders():
    mixed = interleave(ROWS.shuffle(seed=1), PAIR[1], weights=(7, 3), stop="all")
    explained = mixed.batch(4).feed("numpy").explain()
    assert "interleaved" in explained
    assert "2 pipelines, mixed 7:3, until all rows have come; shorter pipelines start again" in explained
    assert "in pipeline 1: any row may come anywhere" in explained
    assert "in pipeline 2: the order of the source" in explained
    assert "2 sources" in explained
    explained = concat(*PAIR).batch(4).feed("numpy").explain()
    assert "2 pipelines, one after the other; in each of them: the order of the source" in explained
    explained = concat(*PAIR).take(4).batch(4).feed("numpy").explain()
    assert "one after the other; the first 4 rows; in each of them: the order of the source" in explained
    assert ", 20 rows per epoch" in interleave(*PAIR, stop=20).batch(4).feed("numpy").explain()
    assert "mixed 1:1, until one of them has no row left" in interleave(*PAIR).batch(4).feed("numpy").explain()
    assert "mixed 1:1 in random turns, until" in interleave(*PAIR, seed=1).batch(4).feed("numpy").explain()
    assert "together, row by row" in zip_rows(ROWS, PAIR[0]).batch(4).feed("numpy").explain()


def test_ray_workers_receive_combined_rows_instead_of_opening_files(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(10))
    rows = fb.from_files(tmp_path / "x.npy")
    for pipeline in (concat(rows, ROWS), interleave(rows, ROWS), zip_rows(rows, ROWS)):
        on_ray = pipeline.batch(4).map(lambda batch: batch, where="ray")
        assert _row_delivery(on_ray, on_ray.transforms, fixed_size=True)[0] == "sent"


def test_the_names_of_labels_must_be_equal_and_are_kept(tmp_path):
    def folder(name, *classes):
        for label in classes:
            (tmp_path / name / label).mkdir(parents=True)
            Image.new("RGB", (4, 4)).save(tmp_path / name / label / "0.png")
        return fb.from_images(tmp_path / name / "*" / "*.png", label="folder")

    first, same, other = folder("a", "cat", "dog"), folder("b", "cat", "dog"), folder("c", "ant", "cat")
    assert concat(first, same).class_names == interleave(first, same).class_names == ("cat", "dog")
    assert concat(first, same).window(2).class_names == ("cat", "dog")
    for combine in (concat, interleave):
        with pytest.raises(SpecError, match=r"\['cat', 'dog'\] and pipeline 2 has \['ant', 'cat'\]. Pass the same"):
            combine(first, other)


def test_states_of_zipped_windows_differ_by_where_the_windows_begin():
    series = fb.from_arrays(np.arange(100.0))
    first = zip_rows(series.window(3).take(49), series.window(3).take(49))
    second = zip_rows(series.window(3, stride=2), series.window(3, stride=2))
    assert first.fingerprint != second.fingerprint
    with pytest.raises(PipelineError, match="choose, window or shuffle rows"):
        zip_rows(series.window(3).take(49), series.window(3, stride=2))


def test_the_seed_of_interleave_is_the_seed_of_later_maps_even_if_it_is_0():
    assert interleave(ROWS.shuffle(seed=5), ROWS, seed=0).seed == 0
    assert interleave(ROWS.shuffle(seed=5), ROWS).seed == 5
