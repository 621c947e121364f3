"""Hostile and damaged files raise a Forebay error or give correct rows.

They never crash the process, run foreign code or cause a huge allocation.
"""

import io
import os
import pickle
import struct
import subprocess
import sys
import tarfile
import zipfile

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.profiles import MANY_EXAMPLES

from forebay.errors import ForebayError, SourceError
from forebay.sources.formats.csv import open_csv, open_txt
from forebay.sources.formats.npy import open_npy
from forebay.sources.formats.npz import open_npz
from forebay.sources.formats.tfrecord import masked_crc, open_tfrecord
from forebay.sources.formats.webdataset import open_webdataset

fuzz = settings(MANY_EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])

ARRAY = np.arange(24, dtype="f4").reshape(8, 3)


def npy_bytes(array):
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


def npz_bytes(method, **members):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return stream.getvalue()


NPY = npy_bytes(ARRAY)
STORED = npz_bytes(zipfile.ZIP_STORED, x=NPY, y=NPY)
DEFLATED = npz_bytes(zipfile.ZIP_DEFLATED, x=NPY, y=NPY)


def tar_bytes(**members):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name.replace("_", "."))
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def tfrecord_bytes(record):
    length = struct.pack("<Q", len(record))
    return length + struct.pack("<L", masked_crc(length)) + record + struct.pack("<L", masked_crc(record))


TAR = tar_bytes(a_npy=NPY, a_cls=b"7", b_npy=NPY, b_cls=b"8")
TFRECORD = 3 * tfrecord_bytes(bytes.fromhex("0a0c0a0a0a017812051a030a0104"))  # an Example with x = [4]


@st.composite
def damaged_files(draw, data):
    """Draw a file with changed or inserted bytes, possibly truncated at either end."""
    content = bytearray(data)
    places = st.integers(0, len(data) - 1)
    for place, value in draw(st.lists(st.tuples(places, st.integers(0, 255)), max_size=4)):
        content[place] = value
    place = draw(places)
    content[place:place] = draw(st.binary(max_size=6))
    start, stop = draw(st.sampled_from([(0, None), (0, draw(places)), (draw(places), None)]))
    return bytes(content[start:stop])


CLAIMS = st.fixed_dictionaries(
    {
        "descr": st.sampled_from(["<f4", ">i8", "|V0", "<U0", "|O", "<M8[s]", "|b1", "x", [("a", "<f4", (2,))]]),
        "fortran_order": st.sampled_from([True, False, 1]),
        "shape": st.lists(st.sampled_from([0, 1, 8, 3, -1, 2**31, 2**60, 2**70, True]), max_size=4).map(tuple),
    }
)


@fuzz
@given(content=damaged_files(NPY) | st.binary(max_size=300))
def test_a_damaged_npy_is_refused_or_read_as_numpy_does(tmp_path, content):
    check_like_numpy(tmp_path / "x.npy", content, open_npy)


@fuzz
@given(header=CLAIMS, data=st.binary(max_size=100))
def test_an_npy_with_any_header_is_refused_or_read_as_numpy_does(tmp_path, header, data):
    check_like_numpy(tmp_path / "x.npy", claim(header, data), open_npy)


@fuzz
@given(content=damaged_files(STORED) | st.binary(max_size=300))
def test_a_damaged_npz_is_refused_or_read_as_numpy_does(tmp_path, content):
    check_like_numpy(tmp_path / "x.npz", content, open_npz)


@fuzz
@given(content=damaged_files(DEFLATED))
def test_a_damaged_compressed_npz_is_refused_or_read_as_numpy_does(tmp_path, content):
    check_like_numpy(tmp_path / "x.npz", content, open_npz)


@fuzz
@given(header=CLAIMS, data=st.binary(max_size=100), method=st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]))
def test_an_npz_member_with_any_header_is_refused_or_read_as_numpy_does(tmp_path, header, data, method):
    check_like_numpy(tmp_path / "x.npz", npz_bytes(method, x=claim(header, data)), open_npz)


@fuzz
@given(content=damaged_files(TAR))
def test_a_damaged_tar_is_refused_or_read(tmp_path, content):
    (tmp_path / "x.tar").write_bytes(content)
    read_all(open_webdataset, tmp_path / "x.tar")


@fuzz
@given(content=damaged_files(TFRECORD))
def test_a_damaged_tfrecord_is_refused_or_read_unchanged(tmp_path, content):
    (tmp_path / "x.tfrecord").write_bytes(content)
    rows = read_all(open_tfrecord, tmp_path / "x.tfrecord")
    assert rows is None or rows.tolist() == [4] * len(rows)


@fuzz
@given(
    text=st.text(st.sampled_from('0123456789.,-+eE\n\n\r #"xnaif;\0é'), max_size=80)
    | st.lists(st.lists(st.floats(), min_size=2, max_size=2), min_size=1).map(
        lambda rows: "\n".join(",".join(map(repr, row)) for row in rows)
    )
)
def test_any_text_is_refused_or_read_as_python_parses_it(tmp_path, text):
    path = tmp_path / "x.csv"
    path.write_bytes(text.encode())
    rows = read_all(open_csv, path)
    assert rows is None or np.array_equal(rows, plain_rows(text, rows.shape), equal_nan=True)


@fuzz
@given(content=st.binary(max_size=200))
def test_any_bytes_as_a_text_table_are_refused_or_read(tmp_path, content):
    path = tmp_path / "x.txt"
    path.write_bytes(content)
    read_all(open_txt, path)


class Payload:
    """An object that makes a folder when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_the_payload_makes_its_folder_when_it_is_unpickled(tmp_path):
    pickle.loads(pickle.dumps(Payload(tmp_path / "trapped")))
    assert (tmp_path / "trapped").exists()


def test_a_pickle_in_an_npy_is_never_loaded(tmp_path):
    (tmp_path / "x.npy").write_bytes(npy_bytes(np.array([Payload(tmp_path / "trapped")], dtype=object)))
    with pytest.raises(SourceError, match="a pickle can run any code"):
        open_npy(tmp_path / "x.npy")
    assert not (tmp_path / "trapped").exists()


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_pickle_in_an_npz_is_never_loaded(tmp_path, method):
    bad = npy_bytes(np.array([Payload(tmp_path / "trapped")], dtype=object))
    (tmp_path / "x.npz").write_bytes(npz_bytes(method, x=bad))
    with pytest.raises(SourceError, match="a pickle can run any code"):
        open_npz(tmp_path / "x.npz")
    assert not (tmp_path / "trapped").exists()


def test_a_bare_pickle_is_never_loaded(tmp_path):
    (tmp_path / "x.npy").write_bytes(pickle.dumps(Payload(tmp_path / "trapped")))
    with pytest.raises(SourceError, match=r"cannot be read as \.npy"):
        open_npy(tmp_path / "x.npy")
    assert not (tmp_path / "trapped").exists()


LIMITED = """
import resource, sys
from forebay.errors import SourceError
from forebay.sources.formats.npy import open_npy
from forebay.sources.formats.npz import open_npz
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 64 * 2**20,) * 2)
for path in sys.argv[1:]:
    try:
        (open_npz if path.endswith(".npz") else open_npy)(path)
    except SourceError:
        print("refused")
"""


def test_sizes_in_damaged_headers_are_not_allocated(tmp_path):
    """A process that can allocate only 64 MiB more must refuse headers that declare gigabytes."""
    shapes = [(2**60,), (2**33, 3), (2**28,), (2**40, 2**40), (0, 2**40)]
    claims = [claim({"descr": "<f4", "fortran_order": False, "shape": shape}, b"data") for shape in shapes]
    claims.append(b"\x93NUMPY\x02\x00\xff\xff\xff\xff{")  # a header of 4 GiB
    files = {f"{number}.npy": content for number, content in enumerate(claims)}
    files |= {f"{number}s.npz": npz_bytes(zipfile.ZIP_STORED, x=content) for number, content in enumerate(claims)}
    files |= {f"{number}d.npz": npz_bytes(zipfile.ZIP_DEFLATED, x=content) for number, content in enumerate(claims)}
    [(tmp_path / name).write_bytes(content) for name, content in files.items()]
    command = [sys.executable, "-c", LIMITED, *(str(tmp_path / name) for name in files)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["refused"] * len(files)


def claim(header, data):
    """Return the bytes of an `.npy` file with this header, valid or not."""
    text = repr(header).encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


def check_like_numpy(path, content, opener):
    path.write_bytes(content)
    rows = read_all(opener, path)
    if rows is None:
        return
    try:
        loaded = np.load(path, allow_pickle=False)
        right = loaded if opener is open_npy else loaded["x"]
    except Exception:  # NumPy also verifies the checksums of stored members; Forebay does not
        return
    assert rows.tobytes() == right[: len(rows)].astype(rows.dtype).tobytes()


def read_all(opener, path):
    """Return the first rows of the first leaf, or None if Forebay refuses the file."""
    try:
        source = opener(path)
        count = min(len(source), 100)
        out = [np.empty((count, *spec.shape), spec.dtype) for spec in source.specs]
        source.gather(slice(0, count), out)
    except ForebayError:
        return None
    return out[0]


def plain_rows(text, shape):
    """Parse the last lines of a table in plain Python."""
    lines = text.rstrip().split("\n")
    rows = [[float(field) for field in line.split(",")] for line in lines[len(lines) - shape[0] :]]
    return np.array(rows).reshape(shape)
