"""The index of a tar archive has all samples, or the archive is refused."""

import io
import os
import struct
import subprocess
import tarfile
import zlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forebay.errors import SourceError
from forebay.sources.files.mapped import MappedFile
from forebay.sources.formats.gzip_file import open_maybe_gzip
from forebay.sources.formats.tar_index import list_samples

# All examples of a test share one `tmp_path`; each example overwrites the file.
in_a_folder = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
HARD, SYMBOLIC = tarfile.LNKTYPE, tarfile.SYMTYPE


def write(path, *files, form=tarfile.GNU_FORMAT):
    """Write an archive. A file is a name with its data, or with a type and the target of a link."""
    with tarfile.open(path, "w", format=form) as archive:
        for name, *content in files:
            info = tarfile.TarInfo(name)
            if len(content) == 2:
                info.type, info.linkname = content
            info.size = len(content[0]) if len(content) == 1 else 0
            archive.addfile(info, io.BytesIO(content[0]))
    return path


def header(name, *, size=0, kind=b"0"):
    """Return a header with a valid checksum. `size` is a number or the bytes of the field."""
    size_field = size if isinstance(size, bytes) else b"%011o\0" % size
    fields = name.ljust(100, b"\0") + b"0000644\0" + 2 * b"0000000\0" + size_field + b"%011o\0" % 0
    block = fields + 8 * b" " + kind + bytes(100) + b"ustar  \0"
    return (fields + b"%06o\0 " % sum(block) + block[156:]).ljust(512, b"\0")


def binary_size(size):
    """Return the size field for numbers that do not fit in octal digits."""
    return (b"\x80" if size >= 0 else b"\xff") + struct.pack(">iq", -(size < 0), size)[1:]


def read(path):
    """Return key and data of each member."""
    file = open_maybe_gzip(path, 2**20)
    return [
        (sample.key, file.read(member.offset, member.nbytes))
        for sample in list_samples(file)
        for member in sample.members.values()
    ]


def ten_samples(path, form=tarfile.USTAR_FORMAT):
    """Write ten samples. Each takes 1024 bytes in every tar format: a header and a data block."""
    return write(path, *((f"{number}.cls", b"%d" % number) for number in range(10)), form=form)


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@in_a_folder
@given(place=st.integers(0, 10 * 1024 - 1), value=st.integers(0, 255))
def test_an_archive_with_a_changed_byte_is_refused_or_has_all_samples(tmp_path, form, place, value):
    path = ten_samples(tmp_path / "x.tar", form)
    data = bytearray(path.read_bytes())
    data[place] = value
    path.write_bytes(data)
    assert count_samples(path) in (None, 10)


@in_a_folder
@given(block=st.integers(0, 19), length=st.integers(1, 19))
def test_an_archive_with_zeroed_blocks_is_refused_or_has_all_samples(tmp_path, block, length):
    """The last sample stays intact: with zeros up to its end, the file is a valid archive of fewer samples."""
    path = ten_samples(tmp_path / "x.tar")
    data, stop = bytearray(path.read_bytes()), min(block + length, 18)
    data[block * 512 : stop * 512] = bytes(max(stop - block, 0) * 512)
    path.write_bytes(data)
    assert count_samples(path) in (None, 10)


@in_a_folder
@given(nbytes=st.integers(0, 10 * 1024))
def test_a_truncated_archive_is_refused(tmp_path, nbytes):
    path = ten_samples(tmp_path / "x.tar")
    os.truncate(path, nbytes)
    assert count_samples(path) is None


def test_an_archive_without_an_end_marker_can_be_completed(tmp_path):
    path = ten_samples(tmp_path / "x.tar")
    os.truncate(path, 10 * 1024)
    with pytest.raises(SourceError, match=r"x\.tar has no end marker after byte 10240.*truncate --size=\+1024 '"):
        read(path)
    subprocess.run(["truncate", "--size=+1024", str(path)], check=True)
    assert len(read(path)) == 10


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_a_zeroed_byte_at_the_start_of_a_header_is_refused(tmp_path, form):
    path = ten_samples(tmp_path / "x.tar", form)
    data = bytearray(path.read_bytes())
    data[4096] = 0
    path.write_bytes(data)
    with pytest.raises(SourceError, match=r"x\.tar cannot be read as tar from byte 4096 on"):
        read(path)


@pytest.mark.parametrize("tail", [b"x", b"x" * 1024])
def test_bytes_after_the_end_of_an_archive_are_refused(tmp_path, tail):
    path = ten_samples(tmp_path / "x.tar")
    nbytes = path.stat().st_size
    path.write_bytes(path.read_bytes() + tail)
    with pytest.raises(SourceError, match=rf"goes on after the end .* at byte 10240: byte {nbytes} is not zero"):
        read(path)


def test_concatenated_archives_are_refused_with_a_fix(tmp_path):
    path = ten_samples(tmp_path / "x.tar")
    path.write_bytes(path.read_bytes() * 2)
    with pytest.raises(SourceError, match=r"contains several archives\. Pass each archive as a file of its own"):
        read(path)


def test_zeros_after_the_end_of_an_archive_are_ignored(tmp_path):
    path = ten_samples(tmp_path / "x.tar")
    os.truncate(path, 5 * 2**20)
    assert len(read(path)) == 10


def test_a_hard_link_has_the_data_of_its_target(tmp_path):
    path = write(tmp_path / "x.tar", ("0.cls", b"5"), ("./1.cls", HARD, "0.cls"), ("2.cls", HARD, "1.cls"))
    assert read(path) == [("/0", b"5"), ("./1", b"5"), ("/2", b"5")]


def test_a_symbolic_link_has_the_data_of_its_target(tmp_path):
    path = write(tmp_path / "x.tar", ("a/0.cls", SYMBOLIC, "../1.cls"), ("1.cls", b"5"))
    assert read(path) == [("a/0", b"5"), ("/1", b"5")]


@pytest.mark.parametrize("kind", [HARD, SYMBOLIC])
@pytest.mark.parametrize("target", ["1.cls", "/etc/passwd", "../0.cls", "9.cls"])
def test_a_link_to_no_file_of_the_archive_is_refused(tmp_path, kind, target):
    path = write(tmp_path / "x.tar", ("0.cls", b"5"), ("1.cls", kind, target))
    with pytest.raises(SourceError, match=rf"'1\.cls' in .*x\.tar is a link to '{target}', which is not a file of"):
        read(path)


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.FIFOTYPE, b"M", b"?"])
def test_a_sample_that_is_a_special_file_is_refused(tmp_path, kind):
    path = write(tmp_path / "x.tar", ("0.cls", b"5"), ("1.cls", kind, ""))
    with pytest.raises(SourceError, match=r"'1\.cls' in .*x\.tar is a special file"):
        read(path)


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.DIRTYPE, SYMBOLIC, HARD, b"V"])
def test_entries_that_belong_to_no_sample_are_ignored(tmp_path, kind):
    path = write(tmp_path / "x.tar", ("0.cls", b"5"), ("a", kind, "nowhere"), ("a/.b", kind, "nowhere"))
    assert read(path) == [("/0", b"5")]


def test_a_sparse_file_is_refused(tmp_path):
    (tmp_path / "x.tar").write_bytes(header(b"0.cls", kind=b"S") + bytes(1024))
    with pytest.raises(SourceError, match=r"'0\.cls' in .*x\.tar is a sparse file"):
        read(tmp_path / "x.tar")


@pytest.mark.parametrize("name", ["/etc/0.cls", "../../0.cls", "a\n/0.cls", "x" * 300 + "/0.cls"])
@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_names_are_only_keys(tmp_path, name, form):
    path = write(tmp_path / "x.tar", (name, b"5"), form=form)
    assert read(path) == [(name.removesuffix(".cls"), b"5")]


@pytest.mark.parametrize("size", [-512, -1, 2**32, 2**40, 2**60])
@pytest.mark.parametrize("kind", [b"0", b"L", b"K", b"x", b"g", b"X", b"7"])
@pytest.mark.parametrize("is_compressed", [False, True])
def test_a_size_that_the_archive_cannot_hold_is_refused(tmp_path, size, kind, is_compressed):
    lie = header(b"1.cls", size=binary_size(size), kind=kind)
    data = header(b"0.cls") + lie + bytes([7]) * 512 + header(b"2.cls") + bytes(1024)
    compressor = zlib.compressobj(wbits=31)
    compressed = compressor.compress(data) + compressor.flush()
    (tmp_path / "x.tar").write_bytes(compressed if is_compressed else data)
    with pytest.raises(SourceError, match=r"x\.tar cannot be read as tar"):
        read(tmp_path / "x.tar")


def test_thousands_of_nested_headers_are_refused(tmp_path):
    (tmp_path / "x.tar").write_bytes(3000 * (header(b"x", size=1, kind=b"L") + bytes(512)) + header(b"0.cls"))
    with pytest.raises(SourceError, match=r"x\.tar cannot be read as tar"):
        read(tmp_path / "x.tar")


def test_an_archive_with_thousands_of_global_fields_is_refused(tmp_path):
    fields = tarfile.TarInfo.create_pax_global_header({f"key{number}": "x" for number in range(1001)})
    (tmp_path / "x.tar").write_bytes(fields + header(b"0.cls") + bytes(1024))
    with pytest.raises(SourceError, match=r"'0\.cls' has 1001 fields in extended headers"):
        read(tmp_path / "x.tar")


def count_samples(path):
    try:
        return len(list_samples(MappedFile(path)))
    except SourceError:
        return None
