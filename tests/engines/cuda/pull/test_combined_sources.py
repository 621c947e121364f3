"""The device pulls rows of combined pipelines from the arrays and files of their parts."""

import numpy as np
import pytest
from tests.engines.cuda.pull.host_comparison import assert_same_as_host, random_rows

import forebay as fb


def parts_of(shape_length, dtype="u1", lengths=(90, 41, 70)):
    return [fb.from_arrays({"x": random_rows(length, shape_length, dtype)}) for length in lengths]


@pytest.mark.slow
@pytest.mark.parametrize("resident", ["never", "always"])
@pytest.mark.parametrize("row_nbytes", [37, 400, 50_000])
def test_concatenated_arrays_equal_the_host_rows(framework, resident, row_nbytes):
    pipeline = fb.concat(*parts_of(row_nbytes)).shuffle(seed=1).batch(16)
    explained = assert_same_as_host(pipeline, framework, resident=resident)
    assert "pull" in explained or "resident" in explained


@pytest.mark.parametrize("resident", ["never", "always"])
def test_interleaved_arrays_equal_the_host_rows(framework, resident):
    parts = [part.shuffle(seed=seed) for seed, part in enumerate(parts_of(400))]
    pipeline = fb.interleave(*parts, weights=(3, 1, 2), stop="all", seed=1).batch(16)
    assert_same_as_host(pipeline, framework, resident=resident)


@pytest.mark.parametrize("resident", ["never", "always"])
def test_zipped_arrays_of_other_lengths_equal_the_host_rows(framework, resident):
    first, second = fb.from_arrays({"x": random_rows(90, 400, "u1")}), fb.from_arrays({"y": random_rows(120, 3, "f4")})
    more = fb.from_arrays({"y": random_rows(10, 3, "f4")})
    zipped = fb.zip_rows(first, fb.concat(more, second).take(90)).shuffle(seed=3).batch(16)
    assert_same_as_host(zipped, framework, resident=resident)


def test_two_parts_of_the_same_array_equal_the_host_rows(framework):
    x = random_rows(200, 400, "u1")
    pipeline = fb.concat(fb.from_arrays({"x": x[:120]}), fb.from_arrays({"x": x[80:]}), fb.from_arrays({"x": x}))
    assert_same_as_host(pipeline.shuffle(seed=1).batch(16), framework, resident="never")


def test_arrays_and_files_together_equal_the_host_rows(framework, tmp_path):
    np.save(tmp_path / "x.npy", random_rows(100, 400, "u1"))
    array, file = fb.from_arrays(random_rows(90, 400, "u1")), fb.from_files(tmp_path / "x.npy")
    assert_same_as_host(fb.interleave(array, file.shuffle(seed=1)).batch(16), framework, resident="never")
