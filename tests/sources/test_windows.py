"""Windows of a series equal slices of the series, for every kind of source."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import forebay as fb
from forebay.errors import PipelineError
from forebay.sources.arrays import ArraySource
from forebay.sources.combined import JoinedSource
from forebay.sources.windows import WindowSource, window_count
from forebay.testing import SourceTests


def slices_of(series, length, stride):
    return [series[start : start + length] for start in range(0, len(series) - length + 1, stride)]


def rows_of(pipeline, batch=3):
    return np.concatenate([*pipeline.batch(batch).feed("numpy")])


class Items:
    """A source of another package, whose rows are read one by one."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def series_of(kind, rows, folder):
    if kind == "arrays":
        return fb.from_arrays(rows)
    if kind == "items":
        return fb.from_source(Items(rows))
    if kind == "npy":
        np.save(folder / "series.npy", rows)
        return fb.from_files(folder / "series.npy")
    for number, part in enumerate(np.array_split(rows, 3)):
        np.save(folder / f"part{number}.npy", part)
    return fb.from_files(folder / "part*.npy")


@pytest.mark.parametrize("kind", ["arrays", "items", "npy", "files"])
@pytest.mark.parametrize(("length", "stride", "horizon"), [(4, 1, 0), (4, 4, 1), (3, 2, 2), (1, 1, 0), (30, 7, 0)])
def test_windows_equal_slices_of_the_series(kind, length, stride, horizon, tmp_path):
    rows = np.random.default_rng(0).random((30, 2), dtype=np.float32)
    windows = rows_of(series_of(kind, rows, tmp_path).window(length, stride=stride, horizon=horizon))
    assert np.array_equal(windows, slices_of(rows, length + horizon, stride))


@given(st.integers(1, 60), st.integers(1, 60), st.integers(1, 9))
def test_the_number_of_windows_is_that_of_the_slices(rows, length, stride):
    assert window_count(rows, length, stride) == len(slices_of(range(rows), length, stride))


@given(st.integers(10, 80), st.integers(1, 8), st.integers(1, 5), st.integers(1, 7), st.integers(1, 4), st.data())
def test_shuffled_windows_resume_on_another_number_of_shards(rows, length, stride, batch, shards, data):
    pipeline = fb.from_arrays(np.arange(rows)).window(length, stride=stride).shuffle(seed=2)
    whole = rows_of(pipeline, batch)
    assume(len(whole) >= shards)
    with pipeline.batch(batch).feed("numpy") as feed:
        taken = data.draw(st.integers(0, len(feed) - 1))
        batches = iter(feed)
        first = [next(batches) for _ in range(taken)]
        state = feed.state_dict()
    rest = []
    for index in range(shards):
        with pipeline.shard(index, shards).batch(batch).feed("numpy") as feed:
            feed.load_state_dict(state)
            rest += [*feed]
    got = np.concatenate([*first, *rest])
    assert sorted(map(tuple, got)) == sorted(map(tuple, whole))


@pytest.mark.parametrize("kind", ["arrays", "items", "npy", "files"])
def test_windows_of_a_part_stay_inside_the_part(kind, tmp_path):
    rows = np.arange(30)
    train, test = series_of(kind, rows, tmp_path).split(0.7, 0.3, seed=None)
    assert np.array_equal(rows_of(train.window(4, stride=3)), slices_of(rows[:21], 4, 3))
    assert np.array_equal(rows_of(test.window(4, stride=3)), slices_of(rows[21:], 4, 3))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.integers(1, 6), st.integers(1, 4))
def test_windows_within_an_episode_equal_the_windows_of_each_episode(lengths, length, stride):
    episodes = np.repeat(np.arange(len(lengths)), lengths)
    data = {"step": np.arange(len(episodes)), "episode": episodes}
    expected = [
        window
        for number in range(len(lengths))
        for window in slices_of(np.flatnonzero(episodes == number), length, stride)
    ]
    series = fb.from_arrays(data)
    if not expected:
        with pytest.raises(PipelineError, match="consecutive rows have one label"):
            series.window(length, stride=stride, within="episode")
        return
    batches = [*series.window(length, stride=stride, within="episode").batch(3).feed("numpy")]
    assert np.array_equal(np.concatenate([batch["step"] for batch in batches]), expected)


def test_a_window_holds_every_field_of_the_series():
    data = {"x": np.arange(20).reshape(10, 2), "y": np.arange(10)}
    (batch,) = fb.from_arrays(data).window(4, stride=3).batch(9).feed("numpy")
    assert batch["x"].shape == (3, 4, 2)
    assert batch["y"].tolist() == [[0, 1, 2, 3], [3, 4, 5, 6], [6, 7, 8, 9]]


def test_windows_of_an_array_share_its_memory():
    series = np.arange(1000.0)
    source = fb.from_arrays(series).window(100).source
    assert isinstance(source, ArraySource)
    assert all(np.shares_memory(array, series) for array in source.arrays)


def test_the_fingerprint_depends_on_the_stride_and_the_length():
    series = fb.from_arrays(np.arange(101))
    pipelines = [series.window(50, stride=26), series.window(50, stride=51), series.window(51, stride=26)]
    pipelines += [series.skip(1).window(50, stride=26)]
    assert len({pipeline.batch(1).fingerprint for pipeline in pipelines}) == len(pipelines)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda series: series.window(0), "at least 1"),
        (lambda series: series.window(4, stride=0), "at least 1"),
        (lambda series: series.window(4, horizon=-1), "0 or more"),
        (lambda series: series.window(2.5), "whole number"),
        (lambda series: series.window(9, horizon=2), "only 10"),
        (lambda series: series.shuffle().window(2), "consecutive rows"),
        (lambda series: series.select([3, 1]).window(2), "consecutive rows"),
        (lambda series: series.window(2).window(2), "consecutive rows"),
        (lambda series: series.map(lambda row: row).window(2), "consecutive rows"),
        (lambda series: series.batch(2).window(2), "consecutive rows"),
        (lambda series: series.repeat().window(2), "consecutive rows"),
        (lambda series: series.window(3, within=np.arange(10) // 2), "at most 2 consecutive"),
        (lambda series: series.window(3, within="episode"), "episode"),
    ],
)
def test_wrong_arguments_and_rows_that_are_not_consecutive_are_refused(make, message):
    with pytest.raises(PipelineError, match=message):
        make(fb.from_arrays(np.arange(10)))


def test_a_stream_has_no_windows():
    with pytest.raises(PipelineError, match="not a stream"):
        fb.from_generator(lambda: iter(range(10))).window(2)


class PrefetchingSource(ArraySource):
    can_prefetch = True


class TestWindowSource(SourceTests):
    def make_source(self, tmp_path):
        rows = np.arange(40).reshape(20, 2)
        return WindowSource(PrefetchingSource(rows), slice(0, 20), 4, 3), np.stack(slices_of(rows, 4, 3))


class CountingSource(ArraySource):
    """Counts the rows of each gather."""

    def __init__(self, rows):
        super().__init__(rows)
        self.counts = []

    def gather(self, rows, out):
        self.counts.append(len(rows))
        super().gather(rows, out)


def test_joined_sources_that_do_not_prefetch_gather_large_windows_one_by_one():
    series = CountingSource(np.arange(20 * 4096.0).reshape(20, 4096))
    windows = JoinedSource([WindowSource(series, slice(0, 20), 4, 1) for _ in range(2)])
    out, rows = windows.specs[0].empty(4), np.array([18, 0, 17, 1])
    windows.gather(rows, [out])
    np.testing.assert_array_equal(out, np.stack([series.arrays[0][row % 17 :][:4] for row in rows]))
    assert series.counts == [4, 4, 4, 4]


def test_rows_without_bytes_have_windows_in_every_source():
    empty = np.zeros((10, 0), np.float32)
    for series in (fb.from_arrays(empty), fb.from_source(Items(empty))):
        assert rows_of(series.window(3)).shape == (8, 3, 0)


def test_a_stride_beyond_the_series_gives_one_window():
    assert rows_of(fb.from_arrays(np.arange(10)).window(3, stride=2**70)).tolist() == [[0, 1, 2]]
