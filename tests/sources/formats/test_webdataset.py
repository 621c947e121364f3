"""WebDataset archives: Forebay indexes them once and reads samples in any order."""

import io
import json
import os
import pickle
import tarfile

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image

import forebay as fb
from forebay.core.spec import ArraySpec
from forebay.errors import SourceChangedError, SourceError, SpecError
from forebay.sources.files.many_files import open_files
from forebay.sources.files.mapped import MappedFile
from forebay.sources.formats.tar_index import list_samples, scan_headers
from forebay.sources.formats.webdataset import open_webdataset
from forebay.testing.sources import SourceTests, assert_rows


def tree(rows=20):
    rng = np.random.default_rng(0)
    return {
        "png": rng.integers(0, 256, (rows, 5, 7, 3), dtype=np.uint8),
        "cls": np.arange(rows, dtype="i8"),
        "npy": rng.random((rows, 4)).astype("f4"),
    }


def write(path, arrays):
    """Write samples like the webdataset library: pixels as PNG, a class as text, an array as .npy."""
    import webdataset  # loads torch, which the collection of the tests must not load

    with webdataset.TarWriter(str(path)) as writer:
        for row in range(len(next(iter(arrays.values())))):
            writer.write({"__key__": f"{row:06d}", **{name: sample(array[row]) for name, array in arrays.items()}})
    return path


def sample(value):
    return int(value) if value.ndim == 0 else value


def write_members(path, members):
    with tarfile.open(path, "w") as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


class TestSamples(SourceTests):
    def make_source(self, tmp_path):
        return open_webdataset(write(tmp_path / "x.tar", tree())), tree()


class TestCompressed(SourceTests):
    def make_source(self, tmp_path):
        whole = tree()
        for start, stop in [(0, 7), (7, 20)]:
            write(tmp_path / f"{start}.tar.gz", {name: array[start:stop] for name, array in whole.items()})
        return open_files(tmp_path / "*.tar.gz", max_open_files=1), whole


class TestSelectedMembers(SourceTests):
    def make_source(self, tmp_path):
        path = write(tmp_path / "x.tar", tree())
        return open_webdataset(path, members=["cls", "npy"]), {"cls": tree()["cls"], "npy": tree()["npy"]}


class TestMembersSelectedBySpec(SourceTests):
    def make_source(self, tmp_path):
        path = write(tmp_path / "x.tar", tree())
        return open_webdataset(path, spec={"npy": ArraySpec((4,), "float32")}), {"npy": tree()["npy"]}


class TestDecoded(SourceTests):
    def make_source(self, tmp_path):
        members = [(f"{row}.json", json.dumps({"box": [row, 1, 2, 3]}).encode()) for row in range(20)]
        path = write_members(tmp_path / "x.tar", members)
        boxes = np.stack([np.array([row, 1, 2, 3], "f4") for row in range(20)])
        decode = {"json": lambda data: np.array(json.loads(data)["box"], "f4")}
        return open_webdataset(path, decode=decode), {"json": boxes}


class TestManyArchives(SourceTests):
    def make_source(self, tmp_path):
        whole = tree(25)
        for start, stop in [(0, 7), (7, 19), (19, 20), (20, 25)]:
            write(tmp_path / f"{start}.tar", {name: array[start:stop] for name, array in whole.items()})
        return open_files(tmp_path / "*.tar", max_open_files=2), whole


class TestLongNamesAndFolders(SourceTests):
    def make_source(self, tmp_path):
        members = [(f"{'deep/' * 60}{row % 3}/{row:03d}.cls", str(row).encode()) for row in range(20)]
        return open_webdataset(write_members(tmp_path / "x.tar", members)), {"cls": np.arange(20)}


def list_with_tarfile(path):
    with tarfile.open(path) as archive:
        return [(info.name, info.offset_data, info.size) for info in archive if info.isfile()]


def write_archive(path, form, *, folders, mtime):
    with tarfile.open(path, "w", format=form) as archive:
        for row in range(30):
            info = tarfile.TarInfo(f"{folders}{row}.cls")
            info.size, info.mtime = row * 100, mtime
            archive.addfile(info, io.BytesIO(b"7" * info.size))
        folder = tarfile.TarInfo("folder")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
    return path


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("folders", ["", "a/b/", "é/", "x" * 90 + "/" + "y" * 60 + "/"])
@pytest.mark.parametrize("mtime", [0, 1.5])
def test_scan_headers_lists_an_archive_like_tarfile_or_returns_none(tmp_path, form, folders, mtime):
    path = write_archive(
        tmp_path / "x.tar", form, folders=folders, mtime=int(mtime) if form != tarfile.PAX_FORMAT else mtime
    )
    entries = scan_headers(path.read_bytes(), path.stat().st_size)
    assert entries is None or entries == list_with_tarfile(path)
    assert [sample.members["cls"].nbytes for sample in list_samples(MappedFile(path))] == [
        row * 100 for row in range(30)
    ]


def test_scan_headers_lists_archives_of_the_webdataset_library(tmp_path):
    path = write(tmp_path / "x.tar", tree())
    assert scan_headers(path.read_bytes(), path.stat().st_size) == list_with_tarfile(path)


def test_a_header_with_a_wrong_checksum_is_refused(tmp_path):
    path = write_members(tmp_path / "x.tar", [("0.cls", b"3"), ("1.cls", b"4")])
    data = bytearray(path.read_bytes())
    data[1024] ^= 1
    path.write_bytes(data)
    assert scan_headers(bytes(data), len(data)) is None
    with pytest.raises(SourceError, match=r"cannot be read as tar"):
        open_webdataset(path)


def test_images_can_be_resized(tmp_path):
    stream = io.BytesIO()
    Image.fromarray(tree()["png"][0]).save(stream, "png")
    path = write_members(tmp_path / "x.tar", [("0.png", stream.getvalue())])
    assert open_webdataset(path, size=(2, 3), channels=1).specs == (ArraySpec((2, 3, 1), "uint8"),)


def test_member_suffixes_may_have_several_dots(tmp_path):
    path = write_members(tmp_path / "x.tar", [("0.left.cls", b"3"), ("0.right.cls", b"4")])
    source = open_webdataset(path)
    assert source.structure.paths == ("left.cls", "right.cls")


def test_extra_files_of_other_tools_are_ignored(tmp_path):
    path = write_members(
        tmp_path / "x.tar", [("__index__.json", b"{}"), ("._0.cls", b"x"), ("README", b""), ("0.cls", b"3")]
    )
    assert_rows(open_webdataset(path), slice(0, 1), [np.array([3])])


def test_an_archive_is_indexed_once(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(
        "forebay.sources.formats.webdataset.list_samples",
        lambda file: calls.append(file.path.name) or list_samples(file),
    )
    [write(tmp_path / f"{number}.tar", {"cls": np.arange(3)}) for number in range(2)]
    source = open_files(tmp_path / "*.tar", max_open_files=1)
    assert_rows(source, np.array([0, 5, 1, 4]), [np.tile(np.arange(3), 2)])
    assert sorted(calls) == ["0.tar", "1.tar"]


def test_the_error_names_a_sample_that_lacks_a_member(tmp_path):
    path = write_members(tmp_path / "x.tar", [("0.cls", b"3"), ("0.id", b"3"), ("1.cls", b"4")])
    with pytest.raises(SourceError, match=r"sample '1' in .* has no 'id'\. It has 'cls'.*members="):
        open_webdataset(path)


def test_a_missing_member_is_refused_and_the_error_lists_the_members(tmp_path):
    path = write_members(tmp_path / "x.tar", [("0.cls", b"3")])
    with pytest.raises(SourceError, match=r"no member 'jpg'\. It has 'cls'"):
        open_webdataset(path, members=["jpg"])


def test_a_member_of_an_unknown_kind_is_refused_and_the_error_suggests_two_fixes(tmp_path):
    path = write_members(tmp_path / "x.tar", [("0.json", b"{}")])
    with pytest.raises(SourceError, match=r"'0.json' in .* is no image.*members=.*decode=\{'json': function\}"):
        open_webdataset(path)


def test_a_duplicate_member_of_a_sample_is_refused(tmp_path):
    path = write_members(tmp_path / "x.tar", [("0.cls", b"3"), ("0.cls", b"4")])
    with pytest.raises(SourceError, match=r"two members named '0\.cls'"):
        open_webdataset(path)


def test_the_error_names_a_class_that_is_not_a_number(tmp_path):
    source = open_webdataset(write_members(tmp_path / "x.tar", [("0.cls", b"3"), ("1.cls", b"cat")]))
    with pytest.raises(SourceError, match=r"'1\.cls' in .* is not a 64-bit integer: b'cat'"):
        source.gather(slice(0, 2), [np.empty(2, "i8")])


def test_arrays_of_two_shapes_are_refused_with_both_shapes(tmp_path):
    members = [(f"{row}.npy", npy_bytes(np.zeros(row + 1))) for row in range(2)]
    source = open_webdataset(write_members(tmp_path / "x.tar", members))
    with pytest.raises(SpecError, match=r"'1\.npy' in .* becomes float64\[2\], but '0\.npy' in .* float64\[1\]"):
        source.gather(slice(0, 2), [np.empty((2, 1))])


def test_images_of_two_sizes_are_refused_and_the_error_suggests_a_fix(tmp_path):
    members = [(f"{row}.png", png_bytes(np.zeros((3, row + 1), "u1"))) for row in range(2)]
    source = open_webdataset(write_members(tmp_path / "x.tar", members))
    with pytest.raises(SourceError, match=r"'1\.png' in .* is 3 x 2, but '0\.png' in .* is 3 x 1 .*size=\(3, 1\)"):
        source.gather(slice(0, 2), [np.empty((2, 3, 1, 1), "u1")])


def test_pickled_arrays_are_never_loaded(tmp_path):
    path = write_members(tmp_path / "x.tar", [("0.npy", npy_bytes(np.array([{}])))])
    with pytest.raises(SourceError, match="Only pickle can read"):
        open_webdataset(path)


@pytest.mark.parametrize("extension", ["pickle", "pkl", "pyd", "pth", "npz"])
def test_a_member_that_may_contain_a_pickle_is_never_loaded(tmp_path, extension):
    payload = pickle.dumps(Payload(tmp_path / "trapped"))
    path = write_members(tmp_path / "x.tar", [(f"0.{extension}", payload), ("0.cls", b"3")])
    with pytest.raises(SourceError, match=rf"'0\.{extension}' in .* is no image, array or number"):
        open_webdataset(path)
    assert_rows(open_webdataset(path, members=["cls"]), slice(0, 1), [np.array([3])])
    assert not (tmp_path / "trapped").exists()


class Payload:
    """An object that makes a folder when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_an_array_of_a_single_value_is_a_scalar(tmp_path):
    members = [(f"{row}.npy", npy_bytes(np.float32(row))) for row in range(3)]
    source = open_webdataset(write_members(tmp_path / "x.tar", members))
    assert source.specs == (ArraySpec((), "float32"),)
    assert_rows(source, slice(0, 3), [np.arange(3, dtype="f4")])


@pytest.mark.parametrize("shape", [(1,) * 80, (2,), (2**40,), (0, 2**40), (-1,), (True,)])
def test_an_array_with_an_absurd_shape_is_refused(tmp_path, shape):
    text = repr({"descr": "<f4", "fortran_order": False, "shape": shape}).encode()
    content = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(4)
    with pytest.raises(SourceError, match=r"'0\.npy' in .*x\.tar (is damaged|cannot be read as \.npy)"):
        open_webdataset(write_members(tmp_path / "x.tar", [("0.npy", content)]))


def test_a_postscript_file_named_png_does_not_start_ghostscript(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *arguments: calls.append(arguments))
    postscript = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n"
    path = write_members(tmp_path / "x.tar", [("0.png", png_bytes(np.zeros((10, 10, 3), "u1"))), ("1.png", postscript)])
    with pytest.raises(SourceError, match=r"'1\.png' in .* not an image of a format that Forebay reads"):
        open_webdataset(path).gather(slice(0, 2), [np.empty((2, 10, 10, 3), "u1")])
    assert not calls


@pytest.mark.parametrize("content", [b"", b"no archive", b"x" * 2000])
def test_a_file_that_is_not_tar_is_refused(tmp_path, content):
    (tmp_path / "x.tar").write_bytes(content)
    with pytest.raises(SourceError, match=r"x\.tar (cannot be read as tar|has no samples)"):
        open_webdataset(tmp_path / "x.tar")


def test_a_compressed_archive_larger_than_the_budget_is_refused_and_the_error_suggests_fixes(tmp_path):
    path = write(tmp_path / "x.tar.gz", tree())
    with pytest.raises(SourceError, match=r"more than the limit of 1\.0 KiB.*max_held_bytes=.*gunzip"):
        open_webdataset(path, max_held_nbytes=1024)


def test_a_truncated_archive_is_refused(tmp_path):
    path = write_members(tmp_path / "x.tar", [("0.npy", npy_bytes(np.zeros(1000)))])
    os.truncate(path, 2000)
    with pytest.raises(SourceError, match=r"cut short|unexpected end"):
        open_webdataset(path)


def test_an_archive_that_shrinks_while_open_raises_an_error(tmp_path):
    path = write(tmp_path / "x.tar", {"cls": np.arange(20)})
    source = open_webdataset(path)
    os.truncate(path, 1000)
    with pytest.raises(SourceChangedError, match="has 1000 now"):
        source.gather(slice(19, 20), [np.empty(1, "i8")])


def test_a_shuffled_epoch_has_every_sample_once(tmp_path):
    write(tmp_path / "x.tar", tree())
    with fb.from_files(tmp_path / "x.tar", members=["cls"]).shuffle(seed=1).batch(6).feed("numpy") as feed:
        assert sorted(np.concatenate([batch["cls"] for batch in feed]).tolist()) == list(range(20))


def npy_bytes(array):
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


def png_bytes(array):
    stream = io.BytesIO()
    Image.fromarray(array).save(stream, "png")
    return stream.getvalue()
