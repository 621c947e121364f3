"""`cache()` changes no row, and computes each row once."""

import tarfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pipeline.cached_rows import IMAGES, ROW_NBYTES, Counted, square, write_images
from tests.pipeline.row_pipelines import TEN
from tests.support.received import batches_of, resumed_rows, rows_of

import forebay as fb
from forebay.errors import PipelineError, SpecError
from forebay.testing import SimulatedEngine
from forebay.testing.strategies import seeds


def test_each_row_is_computed_once_apart_from_the_row_for_the_specs(place, version):
    counted = Counted()
    with TEN.map(counted).cache(*place, **version).shuffle(seed=3).batch(4).feed("numpy") as feed:
        epochs = [sorted(rows_of(feed)) for _ in range(4)]
    assert epochs == [[row * 10 for row in range(10)]] * 4
    assert sorted(counted.rows) == [0, *range(10)]


@given(budget=st.integers(1, 12), seed=seeds, batch=st.integers(1, 12), epochs=st.integers(1, 3))
def test_every_budget_gives_the_rows_of_the_pipeline_without_a_cache(budget, seed, batch, epochs):
    plain = TEN.map(square).shuffle(seed=seed).batch(batch)
    cached = TEN.map(square).cache(budget * ROW_NBYTES).shuffle(seed=seed).batch(batch)
    with plain.feed("numpy") as expected, cached.feed("numpy") as feed:
        for _ in range(epochs):
            assert batches_of(feed) == batches_of(expected)
        assert feed.stats()["source"]["cached_rows"] <= min(budget, 10)


def test_rows_that_exceed_the_budget_are_computed_in_every_epoch():
    counted = Counted()
    with TEN.map(counted).cache(7 * ROW_NBYTES).shuffle(seed=1).batch(5).feed("numpy") as feed:
        for _ in range(3):
            assert sorted(rows_of(feed)) == [row * 10 for row in range(10)]
        text, counters = feed.explain(), feed.stats()["source"]
    assert sorted(set(counted.rows)) == list(range(10))
    assert all(counted.rows.count(row) == 1 for row in range(1, 7))
    assert all(counted.rows.count(row) == 3 for row in range(7, 10))
    assert counters == {"cached_rows": 7, "cache_hits": 14}
    assert "the budget holds 7 rows, and 3 rows are computed in every epoch" in text


def test_only_rows_that_the_pipeline_uses_count_against_the_budget():
    counted = Counted()
    chosen = TEN.select([9, 2, 5, 2]).map(counted).cache(3 * ROW_NBYTES)
    with chosen.batch(4).feed("numpy") as feed:
        assert [rows_of(feed) for _ in range(3)] == [[90, 20, 50, 20]] * 3
        assert feed.stats()["source"]["cached_rows"] == 3
        assert "Call cache() before select(), skip() or split()" in feed.explain()
    assert sorted(set(counted.rows)) == [2, 5, 9]
    assert len(counted.rows) <= 5  # also the row from which specs are inferred, and a row twice in one batch


def test_the_parts_of_a_split_share_the_cache_before_it():
    counted = Counted()
    train, test = TEN.map(counted).cache("1MB").split(0.5, 0.5)
    with train.batch(5).feed("numpy") as one, test.batch(5).feed("numpy") as other:
        for _ in range(2):
            assert sorted(rows_of(one) + rows_of(other)) == [row * 10 for row in range(10)]
    assert len(counted.rows) == 11


@given(counts=st.tuples(st.integers(1, 3), st.integers(1, 3)), steps=st.integers(0, 3), budget=st.integers(1, 12))
def test_a_state_resumes_on_another_number_of_shards_and_without_the_cache(counts, steps, budget):
    plain = TEN.map(lambda row: np.float32(row)).shuffle(seed=7)
    cached = TEN.map(lambda row: np.float32(row)).cache(budget * 4).shuffle(seed=7)
    with plain.batch(1).feed("numpy") as feed:
        whole = rows_of(feed)
    with cached.shard(0, counts[0]).batch(1).feed("numpy") as feed:
        for _ in range(min(steps, len(feed))):
            next(feed)
        state = feed.state_dict()
    rest = whole[state["position"] :] if state["epoch"] == 0 else None
    if rest:
        for index in range(min(counts[1], len(rest))):
            for pipeline in (cached, plain):
                assert resumed_rows(pipeline.shard(index, counts[1]).batch(1), state) == rest[index :: counts[1]]


def test_maps_after_the_cache_run_in_every_epoch(place):
    pipeline = TEN.map(square).cache(*place).map(lambda row, rng: row + rng.integers(1 << 40), seed=3).batch(10)
    with pipeline.feed("numpy") as feed:
        first, second = rows_of(feed), rows_of(feed)
    assert first != second
    with pipeline.feed("numpy") as feed:
        assert [rows_of(feed), rows_of(feed)] == [first, second]


def test_an_augmentation_draws_the_same_numbers_as_without_a_cache():
    scaled = IMAGES.map(fb.cast("float32"))
    plain, cached = (images.map(fb.flip(), seed=3).batch(9) for images in (scaled, scaled.cache("1MB")))
    expected = batches_of(plain.feed("numpy"))
    assert np.array_equal(expected, batches_of(cached.feed("numpy")))
    assert not np.array_equal(expected, batches_of(scaled.batch(9).feed("numpy")))


@pytest.mark.parametrize("engine", [{}, {"device": SimulatedEngine()}], ids=["host", "device"])
def test_a_random_map_draws_the_same_numbers_as_without_a_cache(place, engine):
    def draw(rows, rng):
        return rows + rng.integers(1 << 40, size=np.shape(rows))

    def feed_of(before):
        return before.map(draw, seed=3).shuffle(seed=1).map(draw).batch(4).map(draw).feed("numpy", **engine)

    with feed_of(TEN.map(square)) as plain, feed_of(TEN.map(square).cache(*place)) as cached:
        for _ in range(3):
            assert batches_of(cached) == batches_of(plain)


def test_a_cache_follows_a_cache(tmp_path):
    pipeline = TEN.map(square).cache("1MB").map(lambda row: row + 1).cache(tmp_path).batch(4)
    with pipeline.feed("numpy") as feed:
        assert [rows_of(feed) for _ in range(3)] == [[row * row + 1 for row in range(10)]] * 3


@pytest.mark.parametrize("combine", [fb.concat, fb.interleave, fb.zip_rows])
def test_cached_pipelines_can_be_combined(combine):
    plain = combine(TEN, TEN).batch(3)
    cached = combine(TEN.cache("1MB"), TEN.cache(5 * ROW_NBYTES)).batch(3)
    with plain.feed("numpy") as expected, cached.feed("numpy") as feed:
        for _ in range(3):
            np.testing.assert_equal(list(feed), list(expected))


def test_ragged_batches_of_cached_rows_are_refused_before_the_first_epoch():
    pipeline = TEN.map(lambda row: np.full(3, row)).cache("1MB").batch(5, ragged=True)
    with pytest.raises(PipelineError, match="all rows have one shape"):
        pipeline.feed("numpy")


def test_batches_by_length_read_the_lengths_of_cached_rows_from_their_specs():
    counted = Counted()
    pipeline = TEN.map(lambda row: np.repeat(counted(row), 3)).cache("1MB").batch(tokens=6, pad=0)
    assert counted.rows == [0]
    with pipeline.feed("numpy") as feed:
        for _ in range(3):
            assert [batch.shape for batch in feed] == [(2, 3)] * 5


@pytest.mark.parametrize(
    "rows",
    [
        fb.from_source([np.zeros(2), np.zeros(3)]),
        fb.from_arrays(np.arange(2)).map(lambda row: np.zeros(2 + row)),
    ],
)
def test_rows_that_differ_in_shape_are_refused_with_advice(rows):
    message = r", but cache\(\) keeps rows of one shape.*equal in the source, or in the map"
    with rows.cache("1MB").batch(2, pad=0).feed("numpy") as feed, pytest.raises(SpecError, match=message):
        next(feed)


def test_windows_of_cached_rows_have_consecutive_rows():
    pipeline = TEN.map(square).cache("1MB").window(3, stride=3).batch(3)
    with pipeline.feed("numpy") as feed:
        for _ in range(3):
            assert batches_of(feed) == [[[0, 1, 4], [9, 16, 25], [36, 49, 64]]]


def test_a_cache_keeps_the_results_of_built_in_transforms():
    pipeline = TEN.map(fb.cast("float32")).map(fb.scale(0.5)).cache("1MB").batch(10)
    with pipeline.feed("numpy") as feed:
        assert [rows_of(feed) for _ in range(2)] == [[row / 2 for row in range(10)]] * 2
        assert feed.specs == (fb.ArraySpec((), "float32"),)


def test_rows_may_be_trees_with_empty_fields(place):
    pipeline = TEN.map(lambda row: {"x": row, "none": np.zeros((0, 3)), "flags": np.array([True, False])})
    with pipeline.cache(*place).batch(4).feed("numpy") as feed:
        for _ in range(3):
            batches = list(feed)
            assert [batch["none"].shape for batch in batches] == [(4, 0, 3), (4, 0, 3), (2, 0, 3)]
            assert [row for batch in batches for row in batch["x"].tolist()] == list(range(10))
            assert all(batch["flags"][:, 0].all() and not batch["flags"][:, 1].any() for batch in batches)


def test_a_device_gets_the_same_rows(place):
    pipeline = TEN.map(square).cache(*place).shuffle(seed=2).batch(3)
    with pipeline.feed("numpy") as expected, pipeline.feed("numpy", device=SimulatedEngine()) as feed:
        for _ in range(3):
            assert batches_of(feed) == batches_of(expected)


def test_images_are_decoded_once(tmp_path, place):
    write_images(tmp_path)
    images = fb.from_images(tmp_path / "*.png", size=(10, 10), label=lambda path: int(path.stem))
    with images.batch(6).feed("numpy") as feed:
        expected = next(feed)
    with images.cache(*place).shuffle(seed=1).batch(4).feed("numpy") as feed:
        decoded = feed.stats()["source"]["pillow_images"]
        for _ in range(3):
            found = {int(label): image.copy() for batch in feed for image, label in zip(*batch.values(), strict=True)}
            assert all((found[label] == expected["image"][label]).all() for label in range(6))
        assert feed.stats()["source"]["pillow_images"] == decoded + 6
        assert "6 of 6 rows" in feed.explain()


def test_a_cache_does_not_change_images_in_archives(tmp_path):
    write_images(tmp_path)
    with tarfile.open(tmp_path / "images.tar", "w") as archive:
        for path in sorted(tmp_path.glob("*.png")):
            archive.add(path, path.name)
    pipeline = fb.from_files(tmp_path / "images.tar", size=(10, 10))
    with pipeline.batch(6).feed("numpy") as plain, pipeline.cache(tmp_path / "rows").batch(6).feed("numpy") as feed:
        for _ in range(3):
            np.testing.assert_equal(list(feed), list(plain))
