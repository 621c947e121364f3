"""Raw records: the spec alone defines their layout."""

import numpy as np
import pytest

from forebay.core.spec import ArraySpec
from forebay.errors import SourceError, SpecError
from forebay.sources.formats.raw import open_binary
from forebay.testing.sources import SourceTests


class TestSingleArray(SourceTests):
    def make_source(self, tmp_path):
        array = np.arange(60, dtype="f4").reshape(20, 3)
        array.tofile(tmp_path / "x.bin")
        return open_binary(tmp_path / "x.bin", spec=ArraySpec((3,), "float32")), array


class TestPackedRecords(SourceTests):
    def make_source(self, tmp_path):
        records = np.zeros(20, [("label", "u1"), ("image", "f4", (2, 3)), ("id", "i8")])
        records["label"], records["id"] = np.arange(20), np.arange(20) * 3
        records["image"] = np.arange(120).reshape(20, 2, 3)
        records.tofile(tmp_path / "x.bin")
        spec = {"label": "uint8", "image": ArraySpec((2, 3), "float32"), "id": "int64"}
        return open_binary(tmp_path / "x.bin", spec=spec), {name: records[name] for name in spec}


class TestBigEndianAfterAHeader(SourceTests):
    def make_source(self, tmp_path):
        array = np.arange(60, dtype=">u2").reshape(20, 3)
        (tmp_path / "x.bin").write_bytes(b"16 bytes of head" + array.tobytes())
        spec = ArraySpec((3,), "uint16")
        return open_binary(tmp_path / "x.bin", spec=spec, byteorder="big", skip_nbytes=16), array


class TestEmptyFile(SourceTests):
    def make_source(self, tmp_path):
        (tmp_path / "x.bin").touch()
        return open_binary(tmp_path / "x.bin", spec="float32"), np.zeros(0, "f4")


def test_a_missing_spec_is_refused_with_an_example(tmp_path):
    with pytest.raises(SpecError, match="Describe a record with spec="):
        open_binary(tmp_path / "x.bin")


def test_a_file_size_that_is_no_multiple_of_the_record_is_refused_with_both_sizes(tmp_path):
    (tmp_path / "x.bin").write_bytes(bytes(50))
    with pytest.raises(SourceError, match=r"has 50 bytes.*records of 12 bytes"):
        open_binary(tmp_path / "x.bin", spec=ArraySpec((3,), "float32"))


def test_a_spec_in_foreign_byte_order_is_refused(tmp_path):
    (tmp_path / "x.bin").write_bytes(bytes(48))
    with pytest.raises(SpecError, match="byteorder='big'"):
        open_binary(tmp_path / "x.bin", spec=np.dtype("i4").newbyteorder("S"))


@pytest.mark.parametrize("spec", [ArraySpec((None,), "f4"), ArraySpec((0,), "f4"), "O"])
def test_records_without_a_size_are_refused(tmp_path, spec):
    (tmp_path / "x.bin").write_bytes(bytes(48))
    with pytest.raises(SpecError):
        open_binary(tmp_path / "x.bin", spec=spec)


def test_an_unknown_byte_order_is_refused(tmp_path):
    (tmp_path / "x.bin").write_bytes(bytes(48))
    with pytest.raises(SpecError, match="Choose 'little' or 'big'"):
        open_binary(tmp_path / "x.bin", spec="f4", byteorder="middle")


def test_a_header_longer_than_the_file_is_refused(tmp_path):
    (tmp_path / "x.bin").write_bytes(bytes(8))
    with pytest.raises(SourceError, match="skip_nbytes=16"):
        open_binary(tmp_path / "x.bin", spec="f4", skip_nbytes=16)
