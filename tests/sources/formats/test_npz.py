"""`.npz` files: stored members are mapped; compressed members are decompressed once and verified."""

import struct
import zipfile

import numpy as np
import pytest

from forebay.core.spec import ArraySpec
from forebay.errors import BudgetError, SourceChangedError, SourceError, SpecError
from forebay.sources.files.many_files import open_files
from forebay.sources.formats.inflate import DeflatedData
from forebay.sources.formats.npz import open_npz
from forebay.testing.sources import SourceTests, assert_rows, random_rows

HEADER_NBYTES = 128  # of a small .npy file


def tree():
    return {"x": np.arange(30 * 7, dtype="f4").reshape(30, 7), "label": np.arange(30, dtype="i8")[::-1]}


class TestStored(SourceTests):
    def make_source(self, tmp_path):
        np.savez(tmp_path / "x.npz", **tree())
        return open_npz(tmp_path / "x.npz"), tree()


class TestCompressed(SourceTests):
    def make_source(self, tmp_path):
        np.savez_compressed(tmp_path / "x.npz", **tree())
        return open_npz(tmp_path / "x.npz"), tree()


class TestCompressedFortranOrdered(SourceTests):
    def make_source(self, tmp_path):
        arrays = {"x": np.asfortranarray(tree()["x"]), "y": tree()["x"].astype(">f8")}
        np.savez_compressed(tmp_path / "x.npz", **arrays)
        return open_npz(tmp_path / "x.npz"), arrays


class TestStoredAndCompressedMembers(SourceTests):
    def make_source(self, tmp_path):
        with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
            write_member(archive, "x", tree()["x"], zipfile.ZIP_STORED)
            write_member(archive, "label", tree()["label"], zipfile.ZIP_DEFLATED)
        return open_npz(tmp_path / "x.npz"), tree()


class TestMembersSelectedBySpec(SourceTests):
    def make_source(self, tmp_path):
        np.savez(tmp_path / "x.npz", scale=np.float32(3), **tree())
        spec = {"label": "int64", "x": ArraySpec((7,), "float32")}
        return open_npz(tmp_path / "x.npz", spec=spec), tree()


class TestArchiveAfterOtherBytes(SourceTests):
    """An archive after other bytes, as in a self-extracting program."""

    def make_source(self, tmp_path):
        np.savez(tmp_path / "inner.npz", **tree())
        (tmp_path / "x.npz").write_bytes(b"#!/bin/sh\n" + (tmp_path / "inner.npz").read_bytes())
        return open_npz(tmp_path / "x.npz"), tree()


class TestNoRows(SourceTests):
    def make_source(self, tmp_path):
        arrays = {"x": np.zeros((0, 3)), "y": np.zeros(0, "i4")}
        np.savez_compressed(tmp_path / "x.npz", **arrays)
        return open_npz(tmp_path / "x.npz"), arrays


def test_stored_members_have_read_only_memory_regions(tmp_path):
    np.savez(tmp_path / "x.npz", **tree())
    regions = open_npz(tmp_path / "x.npz").memory()
    assert [(region.nbytes, region.writable) for region in regions] == [(840, False), (240, False)]


def test_compressed_members_have_no_memory_regions(tmp_path):
    np.savez_compressed(tmp_path / "x.npz", **tree())
    assert open_npz(tmp_path / "x.npz").memory() == []


def test_a_compressed_member_is_inflated_once(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "x.npz", x=tree()["x"])
    inflate, calls = DeflatedData.inflate, []
    monkeypatch.setattr(DeflatedData, "inflate", lambda self: calls.append(self) or inflate(self))
    source = open_npz(tmp_path / "x.npz")
    assert_rows(source, random_rows(source, 9), [tree()["x"]])
    assert_rows(source, random_rows(source, 9, seed=1), [tree()["x"]])
    assert len(calls) == 1


def test_held_nbytes_counts_the_memory_of_a_member_after_it_is_inflated(tmp_path):
    np.savez_compressed(tmp_path / "x.npz", x=np.zeros(1000, "f4"))
    source = open_npz(tmp_path / "x.npz")
    before = source.held_nbytes
    source.gather(slice(0, 1), [np.empty(1, "f4")])
    assert (before, source.held_nbytes) == (0, 4000 + HEADER_NBYTES)


def test_members_of_unequal_length_are_refused_with_their_lengths(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.zeros(3), y=np.zeros(4))
    with pytest.raises(SpecError, match=r"'x' has 3, 'y' has 4.*members="):
        open_npz(tmp_path / "x.npz")


def test_members_can_be_selected(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.zeros(3), y=np.zeros(4))
    assert open_npz(tmp_path / "x.npz", members=["y"]).structure.paths == ("y",)


def test_a_missing_member_is_refused_and_the_error_lists_the_members(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.zeros(3), y=np.zeros(4))
    with pytest.raises(SourceError, match=r"has no member 'z'\. It has 'x', 'y'"):
        open_npz(tmp_path / "x.npz", members=["z"])


def test_an_archive_without_members_is_refused(tmp_path):
    np.savez(tmp_path / "x.npz")
    with pytest.raises(SourceError, match=r"x\.npz has no members\."):
        open_npz(tmp_path / "x.npz")


def test_a_duplicate_member_name_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        write_member(archive, "x", np.zeros(3), zipfile.ZIP_STORED)
        with pytest.warns(UserWarning, match="Duplicate"):
            write_member(archive, "x", np.ones(3), zipfile.ZIP_STORED)
    with pytest.raises(SourceError, match="2 members named 'x'"):
        open_npz(tmp_path / "x.npz")


def test_an_unsupported_compression_is_refused_and_named(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        write_member(archive, "x", np.zeros(3), zipfile.ZIP_LZMA)
    with pytest.raises(SourceError, match="compressed with lzma"):
        open_npz(tmp_path / "x.npz")


def test_an_encrypted_member_is_refused(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.zeros(3))
    data = bytearray((tmp_path / "x.npz").read_bytes())
    data[data.index(b"PK\x01\x02") + 8] |= 1  # the directory's flag for "encrypted"
    (tmp_path / "x.npz").write_bytes(data)
    with pytest.raises(SourceError, match="is encrypted"):
        open_npz(tmp_path / "x.npz")


def test_python_objects_are_refused(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.array([{}, {}]))
    with pytest.raises(SourceError, match="Only pickle can read"):
        open_npz(tmp_path / "x.npz")


def test_a_damaged_compressed_member_fails_its_checksum(tmp_path):
    np.savez_compressed(tmp_path / "x.npz", x=np.arange(5.0))
    data = bytearray((tmp_path / "x.npz").read_bytes())
    place = data.index(b"PK\x01\x02") + 16  # the checksum of the member
    data[place : place + 4] = struct.pack("<L", 12345)
    (tmp_path / "x.npz").write_bytes(data)
    source = open_npz(tmp_path / "x.npz")
    with pytest.raises(SourceError, match="checksum is wrong"):
        source.gather(slice(0, 5), [np.empty(5)])


def test_a_declared_size_that_deflate_cannot_reach_is_refused(tmp_path):
    np.savez_compressed(tmp_path / "x.npz", x=np.arange(5.0))
    data = bytearray((tmp_path / "x.npz").read_bytes())
    place = data.index(b"PK\x01\x02") + 24  # the inflated size of the member
    data[place : place + 4] = struct.pack("<L", 2**31)
    (tmp_path / "x.npz").write_bytes(data)
    with pytest.raises(SourceError, match="deflate cannot do"):
        open_npz(tmp_path / "x.npz")


@pytest.mark.slow
def test_members_that_inflate_to_more_than_the_budget_are_refused_with_their_size(tmp_path):
    np.savez_compressed(tmp_path / "x.npz", x=np.zeros(2**27, "u1"), y=np.zeros(3))
    with pytest.raises(
        BudgetError, match=rf"claims members that inflate to {2**27 + HEADER_NBYTES} bytes.*max_held_bytes="
    ):
        open_files(tmp_path / "x.npz", members=["x"], max_held_bytes="64MiB")
    assert len(open_files(tmp_path / "x.npz", members=["x"], max_held_bytes="130MiB")) == 2**27
    assert len(open_files(tmp_path / "x.npz", members=["y"], max_held_bytes="64MiB")) == 3


@pytest.mark.slow
def test_the_default_limit_depends_on_the_memory_of_the_machine(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "x.npz", x=np.zeros(2**27, "u1"))
    assert len(open_files(tmp_path / "x.npz")) == 2**27
    monkeypatch.setattr("forebay.sources.files.held_budget._half_of_memory", lambda: 2**26)
    monkeypatch.setattr("forebay.sources.files.held_budget.DEFAULT_HELD_NBYTES", 2**26)
    with pytest.raises(BudgetError, match=r"more than the limit of 64\.0 MiB"):
        open_files(tmp_path / "x.npz")


def test_members_that_share_bytes_are_refused(tmp_path):
    np.savez(tmp_path / "x.npz", a=np.zeros(3), b=np.zeros(3))
    data = bytearray((tmp_path / "x.npz").read_bytes())
    entries = [place for place in range(len(data)) if data.startswith(b"PK\x01\x02", place)]
    data[entries[1] + 42 : entries[1] + 46] = data[entries[0] + 42 : entries[0] + 46]  # the offset of the member
    (tmp_path / "x.npz").write_bytes(data)
    with pytest.raises(SourceError, match=r"'a' ends at byte \d+, after the start of 'b' at byte 0"):
        open_npz(tmp_path / "x.npz")


def test_a_member_that_reaches_into_the_directory_is_refused(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.zeros(3))
    data = bytearray((tmp_path / "x.npz").read_bytes())
    place = data.index(b"PK\x01\x02") + 20
    data[place : place + 8] = struct.pack("<LL", 2**20, 2**20)  # stored and inflated size
    (tmp_path / "x.npz").write_bytes(data)
    with pytest.raises(SourceError, match="after the start of 'the directory'"):
        open_npz(tmp_path / "x.npz")


def test_a_directory_that_is_too_large_is_refused_with_its_size(tmp_path):
    nbytes = 17 * 2**20
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 1, 1, nbytes, 0, 0)  # size and offset of the directory
    (tmp_path / "x.npz").write_bytes(b"PK\x01\x02" + bytes(nbytes - 4) + end)
    with pytest.raises(SourceError, match=rf"its directory claims to have {nbytes} bytes"):
        open_npz(tmp_path / "x.npz")


def test_an_archive_that_shrinks_while_open_raises_an_error(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.zeros(5000))
    source = open_npz(tmp_path / "x.npz")
    with (tmp_path / "x.npz").open("r+b") as file:
        file.truncate(100)
    with pytest.raises(SourceChangedError, match="has 100 now"):
        source.gather(slice(0, 5000), [np.empty(5000)])


def write_member(archive, name, array, method):
    archive.compression = method
    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
        np.save(member, array)
