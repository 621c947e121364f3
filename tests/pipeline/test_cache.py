"""`cache()` changes no row, computes each row once, and refuses what it cannot keep."""

import functools
import pickle
import tarfile
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from tests.pipeline.row_pipelines import BATCHES, STREAM, TEN
from tests.support.received import batches_of, resumed_rows, rows_of

import forebay as fb
from forebay.core.source import AbstractSource
from forebay.core.spec import Structure
from forebay.errors import BudgetError, PipelineError, SpecError
from forebay.testing import SimulatedEngine
from forebay.testing.strategies import seeds

ROW_NBYTES = 8
IMAGES = fb.from_arrays(np.random.default_rng(0).integers(0, 256, (9, 4, 5, 3), np.uint8))


def square(row):
    return row * row


class Counted:
    """A function on rows that records its calls."""

    def __init__(self):
        self.rows, self._lock = [], threading.Lock()

    def __call__(self, row):
        with self._lock:
            self.rows.append(int(row))
        return row * 10


class RaggedRows(AbstractSource):
    """Rows of unknown length."""

    specs, structure = (fb.ArraySpec((None,), "float32"),), Structure(None)

    def __len__(self):
        return 2

    def gather(self, rows, out):
        raise AssertionError


def places(tmp_path):
    return {"ram": ("1MB",), "disk": (tmp_path / "rows",)}


@pytest.fixture(params=["ram", "disk"])
def place(request, tmp_path):
    return places(tmp_path)[request.param]


@pytest.fixture
def version(place):
    return {} if place == ("1MB",) else {"version": "1"}


# The rows


def test_each_row_is_computed_once_after_the_first_row_was_inferred(place, version):
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


def test_rows_beyond_the_budget_are_computed_in_every_epoch():
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
    assert len(counted.rows) <= 5  # the inferred row, and a row twice in one batch


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
def test_rows_that_differ_in_shape_are_refused_with_a_way_out(rows):
    message = r", but cache\(\) keeps rows of one shape.*equal in the source, or in the map"
    with rows.cache("1MB").batch(2, pad=0).feed("numpy") as feed, pytest.raises(SpecError, match=message):
        next(feed)


def test_windows_of_cached_rows():
    pipeline = TEN.map(square).cache("1MB").window(3, stride=3).batch(3)
    with pipeline.feed("numpy") as feed:
        for _ in range(3):
            assert batches_of(feed) == [[[0, 1, 4], [9, 16, 25], [36, 49, 64]]]


def test_built_in_transforms_are_cached():
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


def write_images(folder):
    generator = np.random.default_rng(0)
    for number in range(6):
        pixels = generator.integers(0, 256, (20, 30, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")


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


def test_other_files_labels_and_options_of_a_decoder_get_other_keys(tmp_path):
    write_images(tmp_path)
    folder, files = tmp_path / "cache", tmp_path / "*.png"
    fb.from_images(files, size=(10, 10)).cache(folder)
    fb.from_images(files, size=(10, 10)).cache(folder)
    assert len(list(folder.glob("*.json"))) == 1
    fb.from_images(files, size=(10, 10), resize="crop").cache(folder)
    fb.from_images(files, size=(10, 10), label=lambda path: 1).cache(folder)
    fb.from_images(files, size=(10, 10), label=lambda path: 2).cache(folder)
    fb.from_files(files, size=(10, 10)).cache(folder)
    assert len(list(folder.glob("*.json"))) == 5
    Image.new("RGB", (30, 20)).save(tmp_path / "3.png")
    fb.from_images(files, size=(10, 10)).cache(folder)
    assert len(list(folder.glob("*.json"))) == 6


@pytest.mark.parametrize("version", [None, "1"])
def test_other_names_of_fields_get_another_key(tmp_path, version):
    arrays = np.arange(4), np.arange(4) + 100
    for names, expected in (("xy", arrays[0]), ("yx", arrays[1])):
        pipeline = fb.from_arrays(dict(zip(names, arrays, strict=True))).map(lambda row: row["x"])
        with pipeline.cache(tmp_path, version=version).batch(4).feed("numpy") as feed:
            assert rows_of(feed) == expected.tolist()


def test_images_in_archives_are_cached(tmp_path):
    write_images(tmp_path)
    with tarfile.open(tmp_path / "images.tar", "w") as archive:
        for path in sorted(tmp_path.glob("*.png")):
            archive.add(path, path.name)
    pipeline = fb.from_files(tmp_path / "images.tar", size=(10, 10))
    with pipeline.batch(6).feed("numpy") as plain, pipeline.cache(tmp_path / "rows").batch(6).feed("numpy") as feed:
        for _ in range(3):
            np.testing.assert_equal(list(feed), list(plain))


# The plan


def test_a_feed_keeps_its_plan_if_a_new_one_does_not_fit(monkeypatch):
    with TEN.map(square).cache("1MB").batch(5).feed("numpy") as feed:
        first = rows_of(feed)

        def fail(*arguments):
            raise BudgetError("too small. Pass more.")

        monkeypatch.setattr("forebay.feed.build.build_feed", fail)
        assert [rows_of(feed), rows_of(feed)] == [first, first]
        assert "the old plan stays: too small" in feed.explain()


def test_a_complete_cache_is_planned_like_arrays_in_the_next_epoch():
    cached = TEN.map(square).cache("1MB").batch(2)
    arrays = fb.from_arrays(np.arange(10) ** 2).batch(2)
    with cached.feed("numpy") as feed, arrays.feed("numpy") as expected:
        assert feed.plan.group_batches == 1
        rows_of(feed)
        assert rows_of(feed) == rows_of(expected)
        assert feed.plan.group_batches == expected.plan.group_batches == 5
        assert feed.stats()["batches"] == 10
        assert "complete: new epochs and feeds read the rows like arrays" in feed.explain()


def test_a_batch_of_the_old_plan_stays_valid():
    with TEN.map(square).cache("1MB").batch(5).feed("numpy") as feed:
        kept = list(feed)
        rows_of(feed)
        assert [batch.tolist() for batch in kept] == [[0, 1, 4, 9, 16], [25, 36, 49, 64, 81]]


def test_a_state_is_loaded_after_the_plan_has_changed():
    with TEN.map(square).cache("1MB").shuffle(seed=1).batch(5).feed("numpy") as feed:
        epochs = [batches_of(feed) for _ in range(3)]
        feed.set_epoch(1)
        assert next(feed).tolist() == epochs[1][0]
        state = feed.state_dict()
        feed.load_state_dict(state)
        assert next(feed).tolist() == epochs[1][1]


def test_temporary_rows_count_against_the_host_budget():
    rows = fb.from_arrays(np.zeros((64, 4096), np.uint8)).batch(64)
    cached = fb.from_arrays(np.zeros((64, 4096), np.uint8)).cache("1GB").batch(64)
    with rows.feed("numpy") as plain, cached.feed("numpy") as feed:
        assert feed.plan.nbytes >= plain.plan.nbytes + 2 * 64 * 4096


def test_a_cache_does_not_change_the_fingerprint():
    assert TEN.map(square).cache("1MB").fingerprint == TEN.map(square).fingerprint
    assert TEN.cache("1MB").shuffle(seed=1).fingerprint != TEN.cache("1MB").fingerprint


def test_a_complete_cache_does_not_change_the_order_of_a_later_shuffle(tmp_path):
    np.save(tmp_path / "rows.npy", np.arange(4000 * 64).reshape(4000, 64))
    stored = fb.from_files(tmp_path / "rows.npy", ram_bytes="100KB", ahead_bytes="200KB")
    assert stored.source.shuffle_blocks is not None
    cached = stored.cache("1GB")
    with cached.batch(1000).feed("numpy") as feed:
        assert len(list(feed)) == 4
        assert feed.stats()["source"]["cached_rows"] == 4000
    assert cached.shuffle(seed=1).fingerprint == stored.shuffle(seed=1).fingerprint


def test_a_cache_does_not_change_the_open_blocks_of_a_block_shuffle():
    mapped = TEN.map(lambda row: np.zeros(100_000))
    assert mapped.cache("10MB").shuffle(seed=1, block=1).fingerprint == mapped.shuffle(seed=1, block=1).fingerprint


def test_a_pickled_pipeline_computes_its_rows_again(place):
    pipeline = TEN.map(square).cache(*place).batch(10)
    with pipeline.feed("numpy") as feed:
        rows = rows_of(feed)
    with pickle.loads(pickle.dumps(pipeline)).feed("numpy") as feed:
        assert rows_of(feed) == rows


def test_several_feeds_fill_one_cache(place):
    pipeline = TEN.map(square).cache(*place).repeat(20).shuffle(seed=1).batch(3)
    with pipeline.feed("numpy") as one, pipeline.feed("numpy") as other:
        pairs = zip(one, other, strict=True)
        assert all(first.tolist() == second.tolist() for first, second in pairs)


# The refusals


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
        ({"where": "folder", "path": "other"}, "neither a number of bytes nor a folder"),
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


# The key of a cache on disk


def key_of(pipeline, folder, **options):
    before = set(folder.glob("*.json"))
    pipeline.cache(folder, **options)
    return (set(folder.glob("*.json")) - before, len(list(folder.glob("*.json"))))


def scaled(factor):
    return lambda row: row * factor


def test_equal_functions_share_a_cache_and_others_do_not(tmp_path):
    pipelines = [
        TEN.map(scaled(2)),
        TEN.map(scaled(2)),
        TEN.map(scaled(3)),
        TEN.map(square),
        TEN.map(functools.partial(np.multiply, 2)),
        TEN.map(fb.scale(2.0)),
        TEN.map(fb.scale(2.0, offset=1)),
        TEN.map(square).map(square),
        fb.from_arrays(np.arange(10)[::-1].copy()).map(square),
        fb.from_arrays(np.arange(11)).map(square),
    ]
    found = [key_of(pipeline, tmp_path)[1] for pipeline in pipelines]
    assert found == [1, 1, 2, 3, 4, 5, 6, 7, 8, 9]


def test_a_changed_file_gets_another_key(tmp_path):
    path, folder = tmp_path / "rows.npy", tmp_path / "cache"
    np.save(path, np.arange(10))
    fb.from_files(path).cache(folder)
    fb.from_files(path).cache(folder)
    assert len(list(folder.glob("*.json"))) == 1
    np.save(path, np.arange(10) + 1)
    with fb.from_files(path).cache(folder).batch(10).feed("numpy") as feed:
        assert rows_of(feed) == list(range(1, 11))
    assert len(list(folder.glob("*.json"))) == 2


def test_the_order_is_not_part_of_the_key(tmp_path):
    TEN.map(square).cache(tmp_path)
    TEN.shuffle(seed=1).skip(2).map(square).cache("1MB", path=tmp_path)
    assert len(list(tmp_path.glob("*.json"))) == 1


def test_what_cannot_be_hashed_needs_a_version(tmp_path):
    with pytest.raises(PipelineError, match=r"there is none for map \(an object of the class .*Counted\)\. Pass cache"):
        TEN.map(Counted()).cache(tmp_path)
    with pytest.raises(PipelineError, match="there is none for the source"):
        fb.from_source([1, 2, 3]).cache(tmp_path)
    assert key_of(TEN.map(Counted()), tmp_path, version="1")[1] == 1
    assert key_of(TEN.map(Counted()), tmp_path, version="1")[1] == 1
    assert key_of(TEN.map(Counted()), tmp_path, version="2")[1] == 2
    assert key_of(fb.from_source([1, 2, 3]), tmp_path, version="2")[1] == 3


def test_a_second_pipeline_reads_what_the_first_one_stored(tmp_path):
    first, second = Counted(), Counted()
    for counted in (first, second):
        with TEN.map(counted).cache(tmp_path, version="1").batch(5).feed("numpy") as feed:
            assert rows_of(feed) == [row * 10 for row in range(10)]
    assert second.rows == [0]  # the inferred row


def test_an_interrupted_run_continues(tmp_path):
    first, second = Counted(), Counted()
    with TEN.map(first).cache(tmp_path, version="1").batch(5).take(1).feed("numpy") as feed:
        rows_of(feed)
    with TEN.map(second).cache(tmp_path, version="1").batch(5).feed("numpy") as feed:
        assert rows_of(feed) == [row * 10 for row in range(10)]
    assert sorted(second.rows) == [0, 5, 6, 7, 8, 9]
