"""`.npy` files: Forebay maps them and validates their headers."""

import os

import numpy as np
import pytest

from forebay.core.spec import ArraySpec
from forebay.errors import SourceChangedError, SourceError, SpecError
from forebay.sources.formats import npy
from forebay.sources.formats.npy import open_npy
from forebay.testing.sources import SourceTests, assert_rows


class NpyTests(SourceTests):
    """A source of a single saved array."""

    def make_array(self):
        raise NotImplementedError

    def make_source(self, tmp_path):
        array = self.make_array()
        return open_npy(save(tmp_path, array)), array


class TestImages(NpyTests):
    def make_array(self):
        return np.arange(20 * 48, dtype="u2").reshape(20, 4, 4, 3)


class TestFortranOrdered(NpyTests):
    def make_array(self):
        return np.asfortranarray(np.arange(20 * 6, dtype="f4").reshape(20, 2, 3))


class TestBigEndian(NpyTests):
    def make_array(self):
        return np.arange(60, dtype=">f8").reshape(20, 3)


class TestNoRows(NpyTests):
    def make_array(self):
        return np.zeros((0, 3), "f4")


class TestRowsWithoutBytes(NpyTests):
    def make_array(self):
        return np.zeros((20, 0), "f4")


class TestStructured(NpyTests):
    def make_array(self):
        return np.array([(i, (i, i)) for i in range(20)], [("a", "u1"), ("b", "f8", (2,))])


def test_rows_have_the_structure_of_the_spec(tmp_path):
    source = open_npy(save(tmp_path, np.zeros((4, 3), "f4")), spec={"x": ArraySpec((3,), "float32")})
    assert source.structure.paths == ("x",)


def test_a_spec_that_does_not_match_is_refused_with_both_specs(tmp_path):
    with pytest.raises(SpecError, match=r"float32\[3\], but spec= says array float64\[3\]"):
        open_npy(save(tmp_path, np.zeros((4, 3), "f4")), spec=ArraySpec((3,), "float64"))


def test_the_memory_region_is_read_only_and_as_large_as_the_array(tmp_path):
    (region,) = open_npy(save(tmp_path, np.zeros((4, 3), "f4"))).memory()
    assert (region.nbytes, region.writable) == (48, False)


def test_python_objects_are_refused(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.array([{}, {}]), allow_pickle=True)
    with pytest.raises(SourceError, match="Only pickle can read"):
        open_npy(path)


def test_a_header_is_parsed_again_after_another_thread_disturbed_the_parser(tmp_path, monkeypatch):
    parse, failures = npy._PARSERS[1, 0], [SystemError("AST constructor recursion depth mismatch")] * 3

    def disturbed(stream, **options):
        stream.read(7)
        if failures:
            raise failures.pop()
        stream.seek(-7, os.SEEK_CUR)
        return parse(stream, **options)

    monkeypatch.setitem(npy._PARSERS, (1, 0), disturbed)
    np.save(tmp_path / "x.npy", np.arange(5))
    assert_rows(open_npy(tmp_path / "x.npy"), slice(0, 5), [np.arange(5)])


def test_a_single_value_is_refused(tmp_path):
    message = r"single value.*If each file is one row, write fb\.from_arrays\(np\.array\(paths\)\)\.map\(load\)"
    with pytest.raises(SourceError, match=message):
        open_npy(save(tmp_path, np.float32(3)))


def test_a_truncated_file_is_refused_with_both_sizes(tmp_path):
    path = save(tmp_path, np.zeros((100, 3), "f4"))
    os.truncate(path, 500)
    with pytest.raises(SourceError, match="need 1328 bytes, the file has 500"):
        open_npy(path)


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY", b"\x93NUMPY\x01\x00\xff\xff{", b"PK\x03\x04 something else"])
def test_a_file_that_is_not_npy_is_refused(tmp_path, content):
    path = tmp_path / "x.npy"
    path.write_bytes(content)
    with pytest.raises(SourceError, match=r"x\.npy cannot be read as \.npy"):
        open_npy(path)


@pytest.mark.parametrize("shape", [(1,) * 80, (0,) + (1,) * 79, (2**62, 2), (2**64,)], ids=str)
def test_a_shape_that_numpy_cannot_represent_is_refused(tmp_path, shape):
    header = repr({"descr": "<f4", "fortran_order": False, "shape": shape}).encode()
    path = tmp_path / "x.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(4))
    with pytest.raises(SourceError, match=r"x\.npy is damaged: it claims to hold float32 of shape"):
        open_npy(path)


def test_a_dtype_that_has_too_many_axes_with_the_array_is_refused(tmp_path):
    header = repr({"descr": ("<f4", (1,) * 40), "fortran_order": False, "shape": (1,) * 40}).encode()
    path = tmp_path / "x.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(4))
    with pytest.raises(SourceError, match=r"x\.npy"):
        open_npy(path)


def test_the_error_names_a_missing_file(tmp_path):
    with pytest.raises(SourceError, match=r"nowhere\.npy': No such file"):
        open_npy(tmp_path / "nowhere.npy")


def test_a_named_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / "x.npy")
    with pytest.raises(SourceError, match="not a regular file"):
        open_npy(tmp_path / "x.npy")


def test_a_file_that_shrinks_while_open_raises_an_error_with_both_sizes(tmp_path):
    path = save(tmp_path, np.zeros((1000, 3), "f4"))
    source = open_npy(path)
    os.truncate(path, 200)
    with pytest.raises(SourceChangedError, match="it had 12128 bytes when it was opened and has 200 now"):
        source.gather(slice(0, 1000), [np.empty((1000, 3), "f4")])


def test_a_file_deleted_while_open_stays_readable(tmp_path):
    array = np.arange(60.0).reshape(20, 3)
    path = save(tmp_path, array)
    source = open_npy(path)
    path.unlink()
    assert_rows(source, slice(0, 20), [array])


def test_a_file_replaced_by_renaming_keeps_its_old_rows(tmp_path):
    array = np.arange(60.0).reshape(20, 3)
    path = save(tmp_path, array)
    source = open_npy(path)
    save(tmp_path, np.zeros(1), "other").rename(path)
    assert_rows(source, slice(0, 20), [array])


def test_a_closed_source_raises_an_error(tmp_path):
    source = open_npy(save(tmp_path, np.zeros(4)))
    source.close()
    with pytest.raises(SourceError, match="is closed"):
        source.gather(slice(0, 4), [np.empty(4)])


def save(folder, array, name="x"):
    path = folder / f"{name}.npy"
    np.save(path, array)
    return path
