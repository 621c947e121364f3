"""How well shuffles mix rows that lie sorted by class, when only so many rows may be held at a time.

    python benchmarks/mixing.py                          one table, of every contender that is installed
    python benchmarks/mixing.py --rows 262144 --held 16384 --block 1024

Every contender shuffles for real, in a process of its own, and gives row numbers; what is measured is only their order:

    carried     mean distance between where a row lay and where it comes, beside the third of the rows of a full shuffle
    parted      median distance of two rows that lay next to each other, beside that of a full shuffle
    together    share of rows whose predecessor comes out of the same block of the data
    imbalance   chi-square of the classes in a batch, over its degrees of freedom: 1 for a full shuffle; mean and worst
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

Numbers = np.ndarray[Any, np.dtype[np.int64]]


def full(work: argparse.Namespace) -> Numbers:
    """NumPy's own permutation: what all others are held against."""
    return np.random.default_rng(work.seed).permutation(work.rows)


def forebay_full(work: argparse.Namespace) -> Numbers:
    return _fed(work, {})


def forebay_blocks(work: argparse.Namespace) -> Numbers:
    """As many blocks are mixed as leaves room for those that follow, within what may be held."""
    return _fed(work, {"block": work.block, "mix": _block_order(work, work.block).mix})


def forebay_small_blocks(work: argparse.Namespace) -> Numbers:
    """The same where the disk is as quick with reads of an eighth."""
    return _fed(work, {"block": work.block // 8, "mix": _block_order(work, work.block // 8).mix})


def tf_data(work: argparse.Namespace) -> Numbers:
    import tensorflow as tf

    return _together(tf.data.Dataset.range(work.rows).shuffle(work.held, seed=work.seed).batch(work.batch))


def tf_data_interleaved(work: argparse.Namespace) -> Numbers:
    """As its users do with many files: files in shuffled order, 16 of them interleaved, then the buffer."""
    import tensorflow as tf

    files = tf.data.Dataset.range(0, work.rows, work.block).shuffle(work.rows // work.block, seed=work.seed)
    rows = files.interleave(lambda first: tf.data.Dataset.range(first, first + work.block), cycle_length=16)
    return _together(rows.shuffle(work.held, seed=work.seed).batch(work.batch))


def ray_data(work: argparse.Namespace) -> Numbers:
    return _from_ray(work, lambda dataset: dataset)


def ray_data_blocks(work: argparse.Namespace) -> Numbers:
    """As its documentation says: blocks in random order, then the local buffer."""
    return _from_ray(work, lambda dataset: dataset.randomize_block_order(seed=work.seed))


CONTENDERS: dict[str, Callable[[argparse.Namespace], Numbers]] = {
    "full shuffle (NumPy)": full,
    "forebay shuffle()": forebay_full,
    "forebay shuffle(block=)": forebay_blocks,
    "forebay shuffle(block=), an eighth of it": forebay_small_blocks,
    "tf.data shuffle(buffer)": tf_data,
    "tf.data files shuffled, 16 interleaved, shuffle(buffer)": tf_data_interleaved,
    "Ray Data local_shuffle_buffer_size": ray_data,
    "Ray Data randomize_block_order, local_shuffle_buffer_size": ray_data_blocks,
}


def measure(order: Numbers, work: argparse.Namespace) -> dict[str, float]:
    """What became of the order in which the rows lay."""
    assert np.array_equal(np.sort(order), np.arange(work.rows)), "a row is missing or came twice"
    places = np.empty_like(order)
    places[order] = np.arange(work.rows)
    balance = _imbalance(order * work.classes // work.rows, work)
    return {
        "carried": float(np.abs(order - np.arange(work.rows)).mean() / (work.rows / 3)),
        "parted": float(np.median(np.abs(np.diff(places))) / (work.rows * (1 - 0.5**0.5))),
        "together": float((order[1:] // work.block == order[:-1] // work.block).mean()),
        "imbalance": float(balance.mean()),
        "worst": float(balance.max()),
    }


def main() -> None:
    work = _arguments()
    if work.only:
        print(json.dumps(measure(CONTENDERS[work.only](work), work)))
        return
    print(
        f"{work.rows} rows in {work.classes} classes, sorted; blocks of {work.block}; {work.held} rows held; "
        f"batches of {work.batch}; {_block_order(work, work.block).open_blocks} blocks mixed by forebay\n"
    )
    print("| | carried | parted | together | imbalance | worst batch |\n|---|---|---|---|---|---|")
    for name in CONTENDERS:
        print(_row(name), flush=True)


def _row(name: str) -> str:
    command = [sys.executable, __file__, *sys.argv[1:], "--only", name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    if done.returncode:
        return f"| {name} | did not run: {done.stderr.strip().splitlines()[-1]} | | | | |"
    told = json.loads(done.stdout.strip().splitlines()[-1])
    return (
        f"| {name} | {told['carried']:.3f} | {told['parted']:.3f} | {told['together']:.4f} "
        f"| {told['imbalance']:.2f} | {told['worst']:.1f} |"
    )


def _imbalance(classes: Numbers, work: argparse.Namespace) -> np.ndarray[Any, np.dtype[np.float64]]:
    batches = classes[: work.rows // work.batch * work.batch].reshape(-1, work.batch)
    counts = np.stack([np.bincount(batch, minlength=work.classes) for batch in batches])
    expected = work.batch / work.classes
    return ((counts - expected) ** 2 / expected).sum(axis=1) / (work.classes - 1)


def _block_order(work: argparse.Namespace, block: int) -> Any:
    """The one that mixes most blocks while no more rows are held than may be."""
    from forebay.order.orders import BlockShuffled, Natural

    held = work.held // block
    orders = [BlockShuffled(Natural(work.rows), work.seed, block, mix) for mix in range(1, held + 1)]
    return max(
        (order for order in orders if order.blocks_within(work.batch) <= held), key=lambda order: order.open_blocks
    )


def _fed(work: argparse.Namespace, options: dict[str, Any]) -> Numbers:
    import forebay as fb

    feed = fb.from_arrays(np.arange(work.rows)).shuffle(seed=work.seed, **options).batch(work.batch).feed("numpy")
    with feed:
        return np.concatenate([batch.copy() for batch in feed])


def _together(dataset: Any) -> Numbers:
    return np.concatenate([batch.numpy() for batch in dataset])


def _from_ray(work: argparse.Namespace, arrange: Callable[[Any], Any]) -> Numbers:
    import ray

    ray.init("local", num_cpus=2, include_dashboard=False, object_store_memory=512 << 20, log_to_driver=False)
    ray.data.DataContext.get_current().execution_options.preserve_order = True  # so that data begins sorted
    ray.data.DataContext.get_current().enable_progress_bars = False
    dataset = arrange(ray.data.range(work.rows, override_num_blocks=work.rows // work.block))
    batches = dataset.iter_batches(
        batch_size=work.batch,
        batch_format="numpy",
        local_shuffle_buffer_size=work.held,
        local_shuffle_seed=work.seed,
    )
    return np.concatenate([batch["id"] for batch in batches])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1 << 20)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--block", type=int, default=1024)
    parser.add_argument("--held", type=int, default=1 << 16, help="rows that may be held")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=CONTENDERS, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
