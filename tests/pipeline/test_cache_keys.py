"""The keys of caches on disk: only equal pipelines share a key."""

import functools

import numpy as np
import pytest
import scipy.sparse
from PIL import Image
from tests.pipeline.cached_rows import Counted, square, write_images
from tests.pipeline.row_pipelines import TEN
from tests.support.received import rows_of

import forebay as fb
from forebay.errors import PipelineError


def key_of(pipeline, folder, **options):
    before = set(folder.glob("*.json"))
    pipeline.cache(folder, **options)
    return (set(folder.glob("*.json")) - before, len(list(folder.glob("*.json"))))


def make_scale(factor):
    return lambda row: row * factor


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


def test_values_places_and_the_width_of_a_csr_matrix_are_in_the_key(tmp_path):
    dense = np.diag(np.arange(1.0, 6.0))
    wider, moved, scaled_up = np.pad(dense, ((0, 0), (0, 2))), dense[:, ::-1], dense * 2
    matrices = [scipy.sparse.csr_matrix(rows) for rows in (dense, dense, wider, moved, scaled_up)]
    for matrix in matrices:
        fb.from_arrays({"x": matrix, "y": np.arange(5)}).map(width).cache(tmp_path)
    assert len(list(tmp_path.glob("*.json"))) == 4
    fb.from_arrays({"x": matrices[0], "y": np.arange(5) + 1}).map(width).cache(tmp_path)
    assert len(list(tmp_path.glob("*.json"))) == 5


def width(row):
    return np.int64(len(row["x"]))


def test_texts_and_options_of_packed_rows_are_in_the_key(tmp_path):
    texts = fb.from_ragged(np.arange(20), [0, 3, 7, 8, 15, 20])
    others = fb.from_ragged(np.arange(1, 21), [0, 3, 7, 8, 15, 20]), fb.from_ragged(np.arange(20), [0, 3, 7, 9, 15, 20])
    selected = texts.select(np.array([0, 1, 2, 3])), texts.select(np.array([0, 1, 2, 4]))
    packed = [texts.pack(8), texts.pack(8), *(each.pack(8) for each in (*others, *selected))]
    packed += [texts.pack(8, pad=-1), texts.pack(8, seed=1), texts.pack(8, long="truncate"), texts.pack(9)]
    for pipeline in packed:
        pipeline.cache(tmp_path)
    assert len(list(tmp_path.glob("*.json"))) == len(packed) - 1
    with texts.pack(8).cache(tmp_path).batch(9).feed("numpy") as feed, texts.pack(8).batch(9).feed("numpy") as plain:
        assert [batch["tokens"].tolist() for batch in feed] == [batch["tokens"].tolist() for batch in plain]


def test_a_changed_text_is_found_before_packed_rows_are_stored(tmp_path):
    values = np.arange(20)
    pipeline = fb.from_ragged(values, [0, 3, 7, 8, 15, 20]).pack(8).cache(tmp_path).batch(2)
    values[0] = 5
    with pipeline.feed("numpy") as feed, pytest.raises(PipelineError, match="data"):
        next(feed)


def test_equal_functions_share_a_cache_and_others_do_not(tmp_path):
    pipelines = [
        TEN.map(make_scale(2)),
        TEN.map(make_scale(2)),
        TEN.map(make_scale(3)),
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


def test_a_second_pipeline_reads_the_rows_that_the_first_pipeline_stored(tmp_path):
    first, second = Counted(), Counted()
    for counted in (first, second):
        with TEN.map(counted).cache(tmp_path, version="1").batch(5).feed("numpy") as feed:
            assert rows_of(feed) == [row * 10 for row in range(10)]
    assert second.rows == [0]  # the row from which specs are inferred


def test_an_interrupted_run_continues(tmp_path):
    first, second = Counted(), Counted()
    with TEN.map(first).cache(tmp_path, version="1").batch(5).take(1).feed("numpy") as feed:
        rows_of(feed)
    with TEN.map(second).cache(tmp_path, version="1").batch(5).feed("numpy") as feed:
        assert rows_of(feed) == [row * 10 for row in range(10)]
    assert sorted(second.rows) == [0, 5, 6, 7, 8, 9]
