"""Measure how well shuffles with limited memory mix rows that are stored sorted by class.

    python benchmarks/mixing.py [--rows 1048576] [--held 65536] [--block 1024]

Every contender shuffles row numbers in its own process. The script prints one table. If a contender cannot run, its row
of the table shows the error. The columns measure the shuffled order:

    displacement        mean distance between the stored and the shuffled position of a row, relative to a full shuffle
    neighbour distance  median distance, after the shuffle, of two rows that were stored next to each other, relative to
                        a full shuffle
    same block          share of rows that follow a row of the same block
    imbalance           chi-square of the classes in a batch, divided by its degrees of freedom, as the mean of all
                        batches; about 1 for a full shuffle
    worst batch         the largest imbalance of a batch
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

RowNumbers = np.ndarray[Any, np.dtype[np.int64]]


def numpy_full(work: argparse.Namespace) -> RowNumbers:
    """Permute all rows with NumPy, as the reference for the other shuffles."""
    return np.random.default_rng(work.seed).permutation(work.rows)


def forebay_full(work: argparse.Namespace) -> RowNumbers:
    return _rows_of_feed(work, {})


def forebay_blocks(work: argparse.Namespace) -> RowNumbers:
    """Mix as many blocks as fit into memory besides the prefetched blocks."""
    return _rows_of_feed(work, {"block": work.block, "mix": _block_order(work, work.block).max_open_blocks})


def forebay_small_blocks(work: argparse.Namespace) -> RowNumbers:
    """Mix blocks of an eighth of `--block` rows, in the same memory.

    Some disks read small blocks as fast as large ones.
    """
    return _rows_of_feed(work, {"block": work.block // 8, "mix": _block_order(work, work.block // 8).max_open_blocks})


def tf_data(work: argparse.Namespace) -> RowNumbers:
    import tensorflow as tf

    return _rows_of_dataset(tf.data.Dataset.range(work.rows).shuffle(work.held, seed=work.seed).batch(work.batch))


def tf_data_interleaved(work: argparse.Namespace) -> RowNumbers:
    """Shuffle files, interleave 16 of them, and shuffle their rows in a buffer.

    Users of tf.data do this with many files.
    """
    import tensorflow as tf

    files = tf.data.Dataset.range(0, work.rows, work.block).shuffle(work.rows // work.block, seed=work.seed)
    rows = files.interleave(lambda first: tf.data.Dataset.range(first, first + work.block), cycle_length=16)
    return _rows_of_dataset(rows.shuffle(work.held, seed=work.seed).batch(work.batch))


def ray_data(work: argparse.Namespace) -> RowNumbers:
    return _rows_of_ray(work, lambda dataset: dataset)


def ray_data_blocks(work: argparse.Namespace) -> RowNumbers:
    """Randomize the order of blocks and shuffle rows in a local buffer.

    The documentation of Ray Data advises this.
    """
    return _rows_of_ray(work, lambda dataset: dataset.randomize_block_order(seed=work.seed))


CONTENDERS: dict[str, Callable[[argparse.Namespace], RowNumbers]] = {
    "full shuffle (NumPy)": numpy_full,
    "forebay shuffle()": forebay_full,
    "forebay shuffle(block=)": forebay_blocks,
    "forebay shuffle(block=), blocks of an eighth": forebay_small_blocks,
    "tf.data shuffle(buffer)": tf_data,
    "tf.data files shuffled, 16 interleaved, shuffle(buffer)": tf_data_interleaved,
    "Ray Data local_shuffle_buffer_size": ray_data,
    "Ray Data randomize_block_order, local_shuffle_buffer_size": ray_data_blocks,
}


def measure(order: RowNumbers, work: argparse.Namespace) -> dict[str, float]:
    """Return the numbers of the table for a shuffled order."""
    assert np.array_equal(np.sort(order), np.arange(work.rows)), "a row is missing or occurs twice"
    positions = np.empty_like(order)
    positions[order] = np.arange(work.rows)
    imbalance = _imbalance(order * work.classes // work.rows, work)
    # In a full shuffle of n rows, the mean distance is n / 3, and the median distance of two rows is n (1 - sqrt 0.5).
    return {
        "displacement": float(np.abs(order - np.arange(work.rows)).mean() / (work.rows / 3)),
        "neighbour_distance": float(np.median(np.abs(np.diff(positions))) / (work.rows * (1 - 0.5**0.5))),
        "same_block": float((order[1:] // work.block == order[:-1] // work.block).mean()),
        "imbalance": float(imbalance.mean()),
        "worst": float(imbalance.max()),
    }


def main() -> None:
    work = _parse_arguments()
    if work.only:
        print(json.dumps(measure(CONTENDERS[work.only](work), work)))
        return
    print(
        f"{work.rows} rows in {work.classes} classes, sorted by class; blocks of {work.block} rows; memory for "
        f"{work.held} rows; batches of {work.batch} rows; forebay mixes "
        f"{_block_order(work, work.block).open_blocks} blocks\n"
    )
    print("| | displacement | neighbour distance | same block | imbalance | worst batch |\n|---|---|---|---|---|---|")
    for name in CONTENDERS:
        print(_table_row(name), flush=True)


def _table_row(name: str) -> str:
    """Run a contender in its own process, and return its row of the Markdown table."""
    command = [sys.executable, __file__, *sys.argv[1:], "--only", name]
    completed = subprocess.run(command, capture_output=True, text=True, timeout=900)
    if completed.returncode:
        return f"| {name} | did not run: {completed.stderr.strip().splitlines()[-1]} | | | | |"
    result = json.loads(completed.stdout.strip().splitlines()[-1])
    return (
        f"| {name} | {result['displacement']:.3f} | {result['neighbour_distance']:.3f} | {result['same_block']:.4f} "
        f"| {result['imbalance']:.2f} | {result['worst']:.1f} |"
    )


def _imbalance(classes: RowNumbers, work: argparse.Namespace) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the imbalance of each full batch, from the class of each row."""
    batches = classes[: work.rows // work.batch * work.batch].reshape(-1, work.batch)
    counts = np.stack([np.bincount(batch, minlength=work.classes) for batch in batches])
    expected = work.batch / work.classes
    return ((counts - expected) ** 2 / expected).sum(axis=1) / (work.classes - 1)


def _block_order(work: argparse.Namespace, block: int) -> Any:
    """Return the block shuffle that mixes as many blocks as the memory limit allows."""
    from forebay.order.orders import BlockShuffled, Sequential

    max_blocks = work.held // block
    orders = [BlockShuffled(Sequential(work.rows), work.seed, block, mix) for mix in range(1, max_blocks + 1)]
    return max(
        (order for order in orders if order.blocks_within(work.batch) <= max_blocks),
        key=lambda order: order.open_blocks,
    )


def _rows_of_feed(work: argparse.Namespace, options: dict[str, Any]) -> RowNumbers:
    import forebay as fb

    feed = fb.from_arrays(np.arange(work.rows)).shuffle(seed=work.seed, **options).batch(work.batch).feed("numpy")
    with feed:
        return np.concatenate([batch.copy() for batch in feed])


def _rows_of_dataset(dataset: Any) -> RowNumbers:
    return np.concatenate([batch.numpy() for batch in dataset])


def _rows_of_ray(work: argparse.Namespace, order_blocks: Callable[[Any], Any]) -> RowNumbers:
    import ray

    ray.init("local", num_cpus=2, include_dashboard=False, object_store_memory=512 << 20, log_to_driver=False)
    context = ray.data.DataContext.get_current()
    context.execution_options.preserve_order = True  # the rows must be sorted before the shuffle
    context.enable_progress_bars = False
    dataset = order_blocks(ray.data.range(work.rows, override_num_blocks=work.rows // work.block))
    batches = dataset.iter_batches(
        batch_size=work.batch,
        batch_format="numpy",
        local_shuffle_buffer_size=work.held,
        local_shuffle_seed=work.seed,
    )
    return np.concatenate([batch["id"] for batch in batches])


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1 << 20)
    parser.add_argument("--classes", type=int, default=100, help="number of classes, of equal size")
    parser.add_argument("--block", type=int, default=1024, help="rows per block or file")
    parser.add_argument("--held", type=int, default=1 << 16, help="rows that fit into memory")
    parser.add_argument("--batch", type=int, default=256, help="rows per batch")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=CONTENDERS, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
