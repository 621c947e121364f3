"""The pipelines whose states version 0.1 wrote. make_fixtures.py and the tests share them.

This file uses only the public interface of Forebay.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

import forebay as fb

__all__ = ["CASES", "Case", "OwnState", "advance", "batches_of", "rest_and_next"]

ROWS = 23  # not a multiple of any batch size used here


@dataclass(frozen=True)
class Case:
    """A pipeline, the position of its state, and the number of recorded batches."""

    make: Callable[[Path], fb.Pipeline]  # the argument is an empty folder for files
    epochs: int = 0  # whole epochs that are received before the state is taken
    batches: int = 0  # batches of the next epoch that are received before the state is taken
    resumed: Callable[[Path], fb.Pipeline] | None = None  # the pipeline that loads the state; None: the same pipeline
    limit: int | None = None  # recorded batches of each epoch; None: all
    needs: str = "numpy"  # the case is skipped without this module


def advance(feed: Any, case: Case) -> Iterator[Any]:
    """Move to the position of the case and return the iterator."""
    for _ in range(case.epochs):
        for _ in feed:
            pass
    iterator = iter(feed) if case.batches else feed
    for _ in range(case.batches):
        next(iterator)
    return iterator


def rest_and_next(rest: Any, feed: Any, limit: int | None) -> dict[str, Any]:
    """Return the remaining batches of this epoch, and the batches of the next epoch."""
    return {"rest": batches_of(rest, limit), "next": batches_of(feed, limit)}


def batches_of(batches: Any, limit: int | None = None) -> list[Any]:
    """Return batches as JSON would load them."""
    plain: list[Any] = json.loads(json.dumps([_plain(batch) for batch in islice(iter(batches), limit)]))
    return plain


def _plain(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {name: _plain(leaf) for name, leaf in tree.items()}
    return [_plain(leaf) for leaf in tree] if isinstance(tree, tuple | list) else np.asarray(tree).tolist()


# Arrays


def _numbers(_: Path) -> fb.Pipeline:
    return fb.from_arrays(np.arange(ROWS))


def _tree(_: Path) -> fb.Pipeline:
    rows = np.arange(ROWS)
    return fb.from_arrays({"x": np.stack([rows, rows * 2], axis=1).astype("f4"), "y": rows.astype("u1")})


def _many(_: Path) -> fb.Pipeline:
    """Make so many rows that a shuffle computes its order instead of storing a table."""
    return fb.from_arrays(np.arange(100_000))


class _Items:
    """A dataset of a user: rows by `__getitem__`."""

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, row: int) -> tuple[np.ndarray, int]:
        return np.full(2, row, "i2"), row * 3


def _noise(batch: Any, rng: np.random.Generator) -> Any:
    return batch + rng.random(batch.shape)


def _row_noise(row: Any, rng: np.random.Generator) -> Any:
    return row + rng.random()


# Files


def _npy(folder: Path) -> fb.Pipeline:
    np.save(folder / "rows.npy", np.arange(ROWS * 2, dtype="f8").reshape(ROWS, 2))
    return fb.from_files(folder / "rows.npy")


def _several_npy(folder: Path) -> fb.Pipeline:
    for part in (1, 2, 10):  # natural order of names: 10 comes last
        np.save(folder / f"part{part}.npy", np.arange(part * 100, part * 100 + 7))
    return fb.from_files(str(folder / "part*.npy"))


def _npz(folder: Path) -> fb.Pipeline:
    np.savez(folder / "rows.npz", x=np.arange(ROWS, dtype="f4"), y=np.arange(ROWS)[::-1].astype("i2"))
    return fb.from_files(folder / "rows.npz")


def _packed_npz(folder: Path) -> fb.Pipeline:
    for part in range(3):
        np.savez_compressed(folder / f"{part}.npz", x=np.arange(part * 8, part * 8 + 8))
    return fb.from_files(str(folder / "*.npz"))


def _csv(folder: Path) -> fb.Pipeline:
    lines = [f"{row},{row / 4},{row % 3}" for row in range(ROWS)]
    (folder / "rows.csv").write_text("\n".join(["id,value,label", *lines]) + "\n")
    return fb.from_files(folder / "rows.csv")


def _binary(folder: Path) -> fb.Pipeline:
    np.arange(ROWS * 3, dtype="<i4").tofile(folder / "rows.bin")
    return fb.from_files(folder / "rows.bin", spec=fb.ArraySpec((3,), "int32"))


def _hdf5(folder: Path) -> fb.Pipeline:
    """Make more chunks than `max_held_bytes` holds, so that a shuffle becomes a block shuffle."""
    import h5py  # only this case needs it

    with h5py.File(folder / "rows.h5", "w") as file:
        file.create_dataset("x", data=np.arange(600, dtype="i8").reshape(300, 2), chunks=(10, 2), compression="gzip")
    return fb.from_files(folder / "rows.h5", max_held_bytes=1600)


def _parquet(folder: Path) -> fb.Pipeline:
    import pyarrow as pa  # only this case needs it
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"x": np.arange(ROWS), "y": np.arange(ROWS) / 2}), folder / "rows.parquet")
    return fb.from_files(folder / "rows.parquet")


# Streams


def _generator(_: Path) -> fb.Pipeline:
    return fb.from_generator(lambda: iter(range(ROWS)))


def _ragged(_: Path) -> fb.Pipeline:
    return fb.from_generator(lambda: (np.arange(row % 4 + 1) for row in range(ROWS)))


class OwnState:
    """An iterator with its own state."""

    loaded: ClassVar[list[int]] = []  # positions that any instance has loaded

    def __init__(self) -> None:
        self._row = 0

    def __iter__(self) -> "OwnState":
        return self

    def __next__(self) -> int:
        if self._row == 500:
            raise StopIteration
        self._row += 1
        return self._row - 1

    def state_dict(self) -> dict[str, int]:
        return {"row": self._row}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self._row = state["row"]
        self.loaded.append(self._row)


def _own_state(_: Path) -> fb.Pipeline:
    return fb.from_generator(OwnState, spec="int64")


def _ready_batches(_: Path) -> fb.Pipeline:
    return fb.from_batches([{"x": np.full((3 - batch % 2, 2), batch)} for batch in range(9)])


CASES: dict[str, Case] = {
    # Arrays
    "arrays_at_the_start": Case(lambda folder: _numbers(folder).batch(4)),
    "arrays_mid_epoch": Case(lambda folder: _tree(folder).batch(4), batches=3),
    "arrays_last_batch_received": Case(lambda folder: _numbers(folder).batch(4), batches=6),
    "arrays_end_of_epoch": Case(lambda folder: _numbers(folder).batch(4), epochs=1),
    "arrays_remainder_dropped": Case(lambda folder: _numbers(folder).batch(4, drop_remainder=True), batches=2),
    "arrays_shuffled": Case(lambda folder: _tree(folder).shuffle(seed=7).batch(4), epochs=1, batches=2),
    "arrays_shuffled_last_batch_received": Case(lambda folder: _numbers(folder).shuffle(seed=7).batch(4), batches=6),
    "arrays_shuffled_end_of_epoch": Case(lambda folder: _numbers(folder).shuffle(seed=7).batch(4), epochs=2),
    "many_rows_shuffled": Case(lambda folder: _many(folder).shuffle(seed=3).batch(8), batches=5, limit=6),
    "many_rows_block_shuffled": Case(
        lambda folder: _many(folder).shuffle(seed=3, block=512, mix=4).batch(8), batches=5, limit=6
    ),
    "arrays_block_shuffled": Case(
        lambda folder: _numbers(folder).shuffle(seed=5, block=4, mix=2).batch(3), epochs=1, batches=3
    ),
    "arrays_block_shuffled_by_default_mix": Case(
        lambda folder: _numbers(folder).shuffle(seed=5, block=2).batch(3), batches=3
    ),
    "arrays_shuffled_twice": Case(
        lambda folder: _numbers(folder).shuffle(seed=1).take(15).shuffle(seed=2).batch(4), batches=2
    ),
    "arrays_sharded": Case(lambda folder: _numbers(folder).shuffle(seed=2).shard(1, 3).batch(2), batches=2),
    "arrays_sharded_resumed_on_two_shards": Case(
        lambda folder: _numbers(folder).shuffle(seed=2).shard(1, 3).batch(2),
        batches=2,
        resumed=lambda folder: _numbers(folder).shuffle(seed=2).shard(0, 2).batch(4),
    ),
    "arrays_repeated_rows": Case(
        lambda folder: _numbers(folder).shuffle(seed=4).repeat(2).batch(8), epochs=1, batches=4
    ),
    "arrays_repeated_batches": Case(lambda folder: _numbers(folder).shuffle(seed=4).batch(8).repeat(3), batches=5),
    "arrays_repeated_for_ever": Case(
        lambda folder: _numbers(folder).shuffle(seed=4).batch(8).repeat(), batches=10, limit=6
    ),
    "arrays_taken_rows": Case(lambda folder: _numbers(folder).shuffle(seed=4).take(10).batch(4), batches=1),
    "arrays_taken_batches": Case(lambda folder: _numbers(folder).shuffle(seed=4).batch(4).take(4), batches=2),
    "arrays_mapped_with_random_numbers": Case(
        lambda folder: _numbers(folder).shuffle(seed=9).batch(4).map(_noise, seed=11), epochs=1, batches=2
    ),
    "arrays_rows_mapped_with_random_numbers": Case(
        lambda folder: _numbers(folder).shuffle(seed=9).map(_row_noise).batch(4), batches=2
    ),
    "items_shuffled": Case(lambda _: fb.from_source(_Items()).shuffle(seed=6).batch(5), batches=2),
    # Files
    "npy": Case(lambda folder: _npy(folder).shuffle(seed=8).batch(4), batches=2),
    "npy_in_several_files": Case(lambda folder: _several_npy(folder).batch(4), batches=2),
    "npy_in_several_files_shuffled": Case(lambda folder: _several_npy(folder).shuffle(seed=8).batch(4), epochs=1),
    "npz": Case(lambda folder: _npz(folder).shuffle(seed=8).batch(4), batches=2),
    "npz_compressed": Case(lambda folder: _packed_npz(folder).shuffle(seed=8).batch(4), batches=2),
    "csv": Case(lambda folder: _csv(folder).shuffle(seed=8).batch(4), batches=2),
    "binary": Case(lambda folder: _binary(folder).shuffle(seed=8).batch(4), batches=2),
    "hdf5_shuffled_by_its_chunks": Case(
        lambda folder: _hdf5(folder).shuffle(seed=8).batch(8), batches=20, limit=6, needs="h5py"
    ),
    "parquet": Case(lambda folder: _parquet(folder).shuffle(seed=8).batch(4), batches=2, needs="pyarrow"),
    # Streams
    "generator": Case(lambda folder: _generator(folder).batch(4), batches=3),
    "generator_end_of_epoch": Case(lambda folder: _generator(folder).batch(4), epochs=1),
    "generator_with_own_state": Case(lambda folder: _own_state(folder).batch(4), batches=110),
    "generator_shuffled_in_a_window": Case(
        lambda folder: _generator(folder).shuffle(seed=3, window=64).batch(4), epochs=1, batches=2
    ),
    "generator_sharded": Case(lambda folder: _generator(folder).shard(1, 2).batch(3), batches=2),
    "generator_repeated_rows": Case(lambda folder: _generator(folder).repeat(2).batch(8), batches=4),
    "generator_repeated_batches": Case(lambda folder: _generator(folder).batch(8).repeat(2), batches=4),
    "generator_taken": Case(lambda folder: _generator(folder).take(10).batch(4), batches=1),
    "generator_padded": Case(lambda folder: _ragged(folder).batch(4, pad=0), batches=3),
    "ready_batches": Case(lambda folder: _ready_batches(folder), batches=4),
    "ready_batches_sharded": Case(lambda folder: _ready_batches(folder).shard(1, 2), batches=2),
    "ready_batches_repeated": Case(lambda folder: _ready_batches(folder).repeat(2), batches=11),
}
