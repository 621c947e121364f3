"""The data of a case: arrays, files and generated rows, identical in every process."""

import io
import os
import shutil
import tarfile
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from forebay.core.ragged import Ragged
from forebay.measure.bench.model import Skip, Workload
from forebay.measure.bench.row_ids import make_numbered_rows
from forebay.measure.bench.uncached_file import write_uncached_file

__all__ = [
    "MIX_WEIGHTS",
    "PACKING_ROWS",
    "BucketSampler",
    "TextSource",
    "bucket_bounds",
    "generate_rows",
    "list_images",
    "make_array",
    "make_csr",
    "make_frame",
    "make_series",
    "make_texts",
    "make_weights",
    "map_in_python",
    "open_array",
    "write_file",
]

SEED = 20240607  # arbitrary, but the same in every process, so that all contenders load the same rows
POOL_ROWS = 1024  # number of different rows that the generator repeats
JPEG_POOL = 256  # number of different JPEG files; the others are links to them
JPEG_SIZE = (500, 375)  # width and height in pixels, the usual size of photos in ImageNet
JPEG_QUALITY = 86  # makes files of 55 KB
CLASSES = 10  # of the images; every class has its own folder
SHARDS = 8  # number of .tar files among which the images are divided
CSR_VALUES = 20  # values of a sparse row that are not 0
# Tokens; the median length in the file of a `TextSource`. The lengths are lognormal with a sigma of 1, similar to the
# lengths of web pages.
TEXT_MEDIAN = 300
BUCKET_GROWTH = 1.1  # about the largest length in a bucket, divided by the largest length in the previous bucket
MIX_WEIGHTS = (5, 3, 2)  # of the three sources that loaders mix
PACKING_ROWS = 64  # rows that a packer fills at the same time, if it does not know the lengths of all texts


def make_array(work: Workload) -> np.ndarray[Any, Any]:
    """Make the rows of a case in memory.

    With the option "numbered", each row contains its row number. Otherwise the rows are random.
    """
    make = _numbered_array if work.options.get("numbered") else _random_array
    return make(work.rows, work.shape, work.dtype)


def open_array(work: Workload) -> np.ndarray[Any, Any]:
    """Map the file of the workload; if it has none, make the rows in memory."""
    return np.asarray(np.load(work.path, mmap_mode="r")) if work.path else make_array(work)


def write_file(work: Workload, kind: str, folder: Path) -> Path:
    """Write a file of this kind, and return its path.

    "npy" and "npz" (uncompressed) contain the rows of `make_array`, and stay in the page cache. "sparse" is a .npy of
    zeros that takes no disk space. "tokens" contains the bytes of the rows and one more token. "jpegs" is a folder with
    one JPEG file per row, in ten folders. "image_shards" is a folder of `.tar` files with a JPEG file and the number of
    its class per row. "texts" is the file of a `TextSource`, with zeros that take no disk space. "disk" is a .npy of
    random bytes, which a meter drops from the page cache. If the disk has too little space, write no such file.
    """
    if kind == "jpegs":
        return _write_jpegs(work, folder / "jpegs")
    if kind == "image_shards":
        return _write_image_shards(work, folder / "image_shards")
    if kind == "texts":
        return _write_texts(work, folder / "texts.bin")
    if kind == "tokens":
        return _write_tokens(work, folder / "tokens.bin")
    path = folder / f"rows-{kind}.{'npz' if kind == 'npz' else 'npy'}"
    if kind == "sparse":
        _write_sparse(work, path)
    elif kind == "disk":
        write_uncached_file(work, path)
    elif kind == "npz":
        np.savez(path, rows=make_array(work))
    elif work.options.get("numbered"):
        _write_numbered(work, path)
    else:
        np.save(path, make_array(work))
    return path


class TextSource:
    """Returns texts of different length by index.

    One mapped file contains the tokens of all texts.
    """

    def __init__(self, work: Workload) -> None:
        self.offsets = _text_offsets(work.rows, work.shape[0])
        self.tokens = np.asarray(np.memmap(work.path, work.dtype, "r"))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> np.ndarray[Any, Any]:
        return self.tokens[self.offsets[index] : self.offsets[index + 1]]


def make_weights(work: Workload) -> np.ndarray[Any, Any]:
    """Make the weight of each row for weighted sampling."""
    return np.random.default_rng(SEED).random(work.rows)


def make_series(work: Workload) -> np.ndarray[Any, Any]:
    """Make a series with as many windows of stride 1 as the workload has rows."""
    length, *value_shape = work.shape
    return _random_array(work.rows + length - 1, tuple(value_shape), work.dtype)


def make_frame(work: Workload) -> Any:
    """Make a pandas DataFrame with the rows of the workload, one column per value."""
    import pandas as pd

    return pd.DataFrame(make_array(work), columns=[f"x{number}" for number in range(work.shape[0])])


def make_csr(work: Workload) -> Any:
    """Make a float32 CSR matrix with the workload's shape, and 20 values per row."""
    from scipy.sparse import csr_array

    width = work.shape[0]
    generator, starts = np.random.default_rng(SEED), np.arange(0, width, width // CSR_VALUES)[:CSR_VALUES]
    columns = starts + generator.integers(0, width // CSR_VALUES, (work.rows, CSR_VALUES), dtype=np.int32)
    values = generator.random(columns.size, dtype=np.float32)
    return csr_array((values, columns.ravel(), np.arange(0, columns.size + 1, CSR_VALUES)), (work.rows, width))


def make_texts(work: Workload) -> Ragged:
    """Make texts of different length; most are short, and a few are long.

    All tokens are above 0, because 0 is padding.
    """
    return _random_texts(work.rows, int(work.options["longest"]), work.dtype)


class BucketSampler:
    """Yields the row numbers of each batch of texts.

    A batch has shuffled rows of one bucket. The batches of all buckets are shuffled too.
    """

    def __init__(self, work: Workload) -> None:
        lengths = make_texts(work).lengths
        bounds, tokens = bucket_bounds(int(lengths.max())), int(work.options["tokens"])
        numbers = np.searchsorted(bounds, lengths)
        self._buckets = [(np.flatnonzero(numbers == number), tokens // bound) for number, bound in enumerate(bounds)]
        self._generator = np.random.default_rng(0)

    def __len__(self) -> int:
        return sum(-(-len(rows) // size) for rows, size in self._buckets)

    def __iter__(self) -> Iterator[list[int]]:
        batches: list[list[int]] = []
        for rows, size in self._buckets:
            shuffled = self._generator.permutation(rows).tolist()
            batches += [shuffled[start : start + size] for start in range(0, len(shuffled), size)]
        return (batches[number] for number in self._generator.permutation(len(batches)))


def bucket_bounds(longest: int) -> Sequence[int]:
    """Return the largest length of each bucket.

    The longest text of a bucket is at most a tenth longer than the shortest.
    """
    bounds = [longest]
    while bounds[-1] > 1:
        bounds.append(min(bounds[-1] - 1, int(bounds[-1] / BUCKET_GROWTH)))
    return bounds[::-1]


def list_images(work: Workload) -> tuple[list[str], np.ndarray[Any, Any]]:
    """Return the paths of all images, and for each image the number of its folder."""
    paths = sorted(Path(work.path).glob("*/*.jpg"))
    names = sorted({path.parent.name for path in paths})
    return list(map(str, paths)), np.asarray([names.index(path.parent.name) for path in paths])


def generate_rows(work: Workload) -> Iterator[np.ndarray[Any, Any]]:
    """Yield rows from a small pool, so that the generator takes little time."""
    pool = list(_random_array(POOL_ROWS, work.shape, work.dtype))
    for row in range(work.rows):
        yield pool[row % POOL_ROWS]


def map_in_python(batch: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Map a batch in pure Python, which holds the GIL for a few milliseconds."""
    rows = [[value * 0.5 + value * value for value in row] for row in batch.tolist()]
    for _ in range(4):
        rows = [[value * 0.5 + 1.0 for value in row] for row in rows]
    return np.asarray(rows, batch.dtype)


@lru_cache(maxsize=1)
def _random_texts(rows: int, longest: int, dtype: str) -> Ragged:
    generator = np.random.default_rng(SEED)
    lengths = np.clip(generator.lognormal(4.5, 0.8, rows), 1, longest).astype(np.int64)
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    return Ragged(generator.integers(1, 50_000, int(offsets[-1]), dtype=dtype), offsets)


@lru_cache(maxsize=1)
def _numbered_array(rows: int, shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    return make_numbered_rows(rows, shape, dtype)


@lru_cache(maxsize=1)
def _random_array(rows: int, shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    if np.dtype(dtype) != np.float32:
        raise Skip(f"random rows are always float32, and this case has rows of {dtype}")
    return np.random.default_rng(SEED).random((rows, *shape), dtype=np.float32)


def _write_numbered(work: Workload, path: Path) -> None:
    # The rows take gigabytes, so do not cache the array. Flush the file, so that no writes run during the measurement.
    with path.open("wb") as file:
        np.save(file, make_numbered_rows(work.rows, work.shape, work.dtype))
        file.flush()
        os.fsync(file.fileno())


def _write_tokens(work: Workload, path: Path) -> Path:
    path.write_bytes(make_array(work).tobytes() + b"\0\0")
    return path


def _write_sparse(work: Workload, path: Path) -> None:
    # The file is one hole: it reads as zeros and occupies no disk space, even with a billion rows.
    header = {"descr": np.dtype(work.dtype).str, "fortran_order": False, "shape": (work.rows, *work.shape)}
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        row_nbytes = np.dtype(work.dtype).itemsize * int(np.prod(work.shape, dtype=np.int64))
        file.truncate(file.tell() + work.rows * row_nbytes)


@lru_cache(maxsize=1)
def _text_offsets(texts: int, longest: int) -> np.ndarray[Any, Any]:
    lengths = np.exp(np.random.default_rng(SEED).normal(np.log(TEXT_MEDIAN), 1, texts))
    return np.concatenate(([0], np.cumsum(lengths.astype(np.int64).clip(1, longest))))


def _write_texts(work: Workload, path: Path) -> Path:
    with path.open("wb") as file:
        file.truncate(int(_text_offsets(work.rows, work.shape[0])[-1]) * np.dtype(work.dtype).itemsize)
    return path


def _write_jpegs(work: Workload, folder: Path) -> Path:
    """Write images that resemble photos, and return their folder.

    Without Pillow, write none; the contenders then report that Pillow is not installed.
    """
    if find_spec("PIL") is None:
        return folder
    from PIL import Image

    generator = np.random.default_rng(SEED)
    for number in range(CLASSES):
        (folder / f"class{number}").mkdir(parents=True)
    for row in range(work.rows):
        path = folder / f"class{row % CLASSES}" / f"{row}.jpg"
        if row < JPEG_POOL:
            Image.fromarray(_make_photo(generator)).save(path, quality=JPEG_QUALITY)
        else:
            original = row % JPEG_POOL
            os.link(folder / f"class{original % CLASSES}" / f"{original}.jpg", path)
    return folder


def _write_image_shards(work: Workload, folder: Path) -> Path:
    """Write the files of `_write_jpegs` to `.tar` files as WebDataset reads them: 17.jpg, then 17.cls."""
    if find_spec("PIL") is None:
        return folder
    files = _write_jpegs(work, folder / "files")
    for shard in range(SHARDS):
        # dereference: some files are hard links, and WebDataset skips links.
        with tarfile.open(folder / f"{shard}.tar", "w", dereference=True) as archive:
            for row in range(shard, work.rows, SHARDS):
                label = row % CLASSES
                archive.add(files / f"class{label}" / f"{row}.jpg", f"{row:06}.jpg")
                number = tarfile.TarInfo(f"{row:06}.cls")
                number.size = 1
                archive.addfile(number, io.BytesIO(str(label).encode()))
    shutil.rmtree(files)
    return folder


def _make_photo(generator: np.random.Generator) -> np.ndarray[Any, Any]:
    """Return smooth noise with less contrast at finer scales, as in photos."""
    from PIL import Image

    width, height = JPEG_SIZE
    pixels = np.full((height, width, 3), 128, np.float32)
    for cells, contrast in ((8, 70), (32, 35), (128, 16), (width, 9)):
        noise = generator.standard_normal((3, cells * height // width + 1, cells + 1), dtype=np.float32)
        for channel, values in enumerate(noise):
            smooth = Image.fromarray(values).resize(JPEG_SIZE, Image.Resampling.BICUBIC)
            pixels[..., channel] += contrast * np.asarray(smooth)
    return pixels.clip(0, 255).astype(np.uint8)
