"""Compare how fast two checkouts read each file format, measured alternately.

    python benchmarks/compare_formats.py OLD NEW [--rounds 5] [--format zarr] [--save FILE]

The script writes one dataset per format to a temporary folder. It serves this folder over HTTP on loopback, and reads
the dataset of the format `http` from there. Each round has three runs: of OLD, of NEW, and of OLD again. Each run is a
new process. It reads every dataset with two feeds, one in order and one shuffled. Each feed runs one warm-up epoch and
nine measured epochs. The rows per second of the fastest measured epoch count.

For each dataset and order, the table has two columns:

    new/old   rows per second of NEW, divided by the mean of both runs of OLD: the median of all rounds
    old/old   second run of OLD, divided by the first: the smallest and the largest ratio of all rounds

`old/old` shows the noise of the machine. A ratio above 1 in `new/old` means that NEW is faster.
"""

import argparse
import functools
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
from compare_checkouts import Figures, compare

EPOCHS = 9  # measured in each process; the fastest counts
MAX_BATCH_NBYTES = 16 << 20
IMAGE_SHAPE = (96, 96, 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, help="folder of the old checkout")
    parser.add_argument("new", type=Path, help="folder of the new checkout")
    parser.add_argument("--format", action="append", choices=WRITERS, default=[], help="only this format; repeatable")
    parser.add_argument("--rounds", type=int, default=5, help="rounds, each of three runs (default: 5)")
    parser.add_argument("--save", type=Path, help="write the comparison as JSON")
    arguments = parser.parse_args()
    formats = arguments.format or list(WRITERS)
    with tempfile.TemporaryDirectory() as name, served(Path(name)) as address:
        folder = Path(name)
        for each in formats:
            WRITERS[each](folder)
        rounds: list[tuple[Figures, Figures, Figures]] = []
        for _ in range(arguments.rounds):
            old, new, again = (
                measure(checkout, folder, address, formats)
                for checkout in (arguments.old, arguments.new, arguments.old)
            )
            rounds.append((old, new, again))
    rows = compare(rounds)
    if arguments.save:
        arguments.save.write_text(json.dumps(rows, indent=1) + "\n")
    print(f"{'format':12} {'order':12} {'new/old':>8}   old/old")
    for row in rows:
        low, high = row["old_over_old"]
        print(f"{row['case']:12} {row['row']:12} {row['new_over_old']:8.3f}   {low:.3f} to {high:.3f}")


def measure(checkout: Path, folder: Path, address: str, formats: list[str]) -> Figures:
    """Read all formats in one process of a checkout; return rows per second."""
    request = json.dumps({"folder": str(folder), "address": address, "formats": formats})
    environment = os.environ | {"PYTHONPATH": str((checkout / "src").resolve())}
    command = [sys.executable, __file__, "--read", request]
    completed = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return {(name, order, "rows/s"): value for name, order, value in json.loads(completed.stdout)}


def read_formats(folder: Path, address: str, formats: list[str]) -> list[tuple[str, str, float]]:
    """Return (format, order, rows per second) of each format, in this process."""
    results = []
    for name in formats:
        for order in ("in order", "shuffled"):
            pipeline = open_format(name, folder, address)
            if order == "shuffled":
                pipeline = pipeline.shuffle(seed=0)
            results.append((name, order, rows_per_second(pipeline)))
    return results


def rows_per_second(pipeline: Any) -> float:
    """Return the rows per second of the fastest epoch."""
    source, times = pipeline.source, []
    rows, row_nbytes = len(source), sum(spec.nbytes for spec in source.specs)
    with pipeline.batch(min(256, rows, MAX_BATCH_NBYTES // row_nbytes)).feed("numpy") as feed:
        for _ in range(EPOCHS + 1):
            start = time.perf_counter()
            for _batch in feed:
                pass
            times.append(time.perf_counter() - start)
    return rows / min(times[1:])


def open_format(name: str, folder: Path, address: str) -> Any:
    import forebay as fb

    if name == "http":
        return fb.from_files(f"{address}/http.npy")
    options: dict[str, Any] = {}
    if name == "bin":
        options["spec"] = fb.ArraySpec((256,), "f4")
    if name == "tfrecord":
        options["members"] = ["x", "label"]
    return fb.from_files(str(folder / PATTERNS.get(name, f"{name}.*")), **options)


PATTERNS = {"images": "images/*.png", "npy-64B": "npy64.npy", "npy-4KiB": "npy4k.npy", "npy-1MiB": "npy1m.npy"}


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve the folder on loopback, with byte ranges and an ETag; yield the address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(RangeHandler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


class RangeHandler(SimpleHTTPRequestHandler):
    """Answers one byte range per request, and logs nothing."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments: object) -> None: ...

    def send_head(self) -> io.BytesIO:
        path = Path(self.translate_path(self.path))
        nbytes = path.stat().st_size
        unit, _, span = self.headers.get("Range", "").partition("=")
        start, stop = 0, nbytes
        if unit == "bytes":
            first, _, last = span.partition("-")
            start, stop = int(first), min(nbytes, int(last or nbytes - 1) + 1)
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{nbytes}")
        else:
            self.send_response(200)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", '"1"')
        self.send_header("Content-Length", str(stop - start))
        self.end_headers()
        with path.open("rb") as file:
            file.seek(start)
            return io.BytesIO(file.read(stop - start))


def numbers(rows: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(rows, *shape)).astype("f4").round(1)


def write_hdf5(folder: Path) -> None:
    import h5py

    with h5py.File(folder / "hdf5.h5", "w") as file:
        file.create_dataset("x", data=numbers(20_000, 256), chunks=(256, 256), compression="gzip")


def write_zarr(folder: Path) -> None:
    import zarr

    array = zarr.create_array(folder / "zarr.zarr", shape=(20_000, 256), chunks=(256, 256), dtype="f4")
    array[:] = numbers(20_000, 256)


def write_parquet(folder: Path) -> None:
    import pyarrow.parquet as pq

    pq.write_table(_table(), folder / "parquet.parquet", row_group_size=2000)


def write_arrow(folder: Path) -> None:
    import pyarrow as pa

    with pa.ipc.new_file(folder / "arrow.arrow", _table().schema) as writer:
        writer.write_table(_table(), max_chunksize=2000)


def _table() -> Any:
    import pyarrow as pa

    lists = pa.FixedSizeListArray.from_arrays(pa.array(numbers(20_000 * 256)), 256)
    return pa.table({"x": lists, "y": np.arange(20_000)})


def write_tar(folder: Path) -> None:
    with tarfile.open(folder / "tar.tar", "w") as archive:
        for row, array in enumerate(numbers(5000, 256)):
            stream = io.BytesIO()
            np.save(stream, array)
            member = tarfile.TarInfo(f"{row:06}.npy")
            member.size = stream.tell()
            stream.seek(0)
            archive.addfile(member, stream)


def write_tfrecord(folder: Path) -> None:
    from tests.fuzz.frames import example, join_records

    records = [example(row, 1, b"") for row in numbers(5000, 64).tolist()]
    (folder / "tfrecord.tfrecord").write_bytes(join_records(records))


def write_images(folder: Path) -> None:
    from PIL import Image

    (folder / "images").mkdir()
    pixels = np.random.default_rng(0).integers(0, 255, (500, *IMAGE_SHAPE), dtype="u1")
    for row, array in enumerate(pixels):
        Image.fromarray(array).save(folder / "images" / f"{row}.png")


def write_csv(folder: Path) -> None:
    np.savetxt(folder / "csv.csv", numbers(5000, 32), delimiter=",", fmt="%.1f")


def _npy(name: str, rows: int, *shape: int) -> Callable[[Path], None]:
    return lambda folder: np.save(folder / name, numbers(rows, *shape))


WRITERS: dict[str, Callable[[Path], None]] = {
    "npy-64B": _npy("npy64.npy", 500_000, 16),
    "npy-4KiB": _npy("npy4k.npy", 50_000, 1024),
    "npy-1MiB": _npy("npy1m.npy", 256, 262_144),
    "bin": lambda folder: numbers(100_000, 256).tofile(folder / "bin.bin"),
    "npz": lambda folder: np.savez_compressed(folder / "npz.npz", x=numbers(20_000, 256)),
    "csv": write_csv,
    "hdf5": write_hdf5,
    "zarr": write_zarr,
    "parquet": write_parquet,
    "arrow": write_arrow,
    "tar": write_tar,
    "tfrecord": write_tfrecord,
    "images": write_images,
    "http": _npy("http.npy", 20_000, 256),
}


if __name__ == "__main__":
    if sys.argv[1:2] == ["--read"]:
        request = json.loads(sys.argv[2])
        print(json.dumps(read_formats(Path(request["folder"]), request["address"], request["formats"])))
    else:
        main()
