"""Maps that Ray workers run in these tests."""

import json
import os
import signal
import time
from pathlib import Path

import numpy as np

import forebay as fb

ROWS = 600


def rows():
    return {"x": np.arange(ROWS * 3, dtype=np.float64).reshape(ROWS, 3), "number": np.arange(ROWS)}


def wide_rows():
    """Return rows of 8 KB. A few dozen of them exceed `PIECE_NBYTES`."""
    return {"x": np.arange(ROWS * 1000, dtype=np.float64).reshape(ROWS, 1000), "number": np.arange(ROWS)}


def blur(row, rng):
    return {"x": row["x"] * 0.5 + rng.random(3), "number": row["number"]}


def narrow(batch):
    batch["x"] -= 1.0  # in place: a map owns its input in every kind of worker
    return {"x": batch["x"].astype(np.float32), "number": batch["number"]}


def delay(batch):
    time.sleep(0.02)
    return batch


def delay_first_block(batch):
    if batch["id"][0] == 0:
        time.sleep(1)
    return batch


class RefusedError(Exception):
    """An exception of the user with its own constructor."""

    def __init__(self, number):
        super().__init__(number)
        self.number = number


def refuse_300(row):
    if row["number"] == 300:
        raise RefusedError(300)
    return row


def die_at_300(row):
    if row["number"] == 300 and os.environ.get("RAY_JOB_ID"):  # only on a worker
        os.kill(os.getpid(), signal.SIGKILL)
    return row


def repeat_number(row):
    return {"x": np.full(int(row["number"]) % 5 + 1, row["number"])}


def append_itself(row):
    return np.concatenate([row, row])


def negate(batch):
    return fb.Ragged(-batch.values, batch.offsets) if isinstance(batch, fb.Ragged) else -batch


def two_columns(batch):
    return {"x": np.stack([batch["id"] * 2.0, batch["id"] * 2.0 + 1], axis=1), "number": batch["id"]}


def words(batch):
    return {"word": np.array([str(number) for number in batch["id"]])}


def wider_at_the_end(batch):
    return {"x": np.zeros((len(batch["id"]), 2 if batch["id"][0] == 0 else 3))}


def train_on_a_shard(config):
    """Run the training loop of a Ray Train worker: feed two shards and save their rows.

    The first shard has the rank of the worker as its index, and its map runs on Ray. The second is `shard("auto")`, in
    lockstep with the other worker.
    """
    import torch
    import torch.distributed as dist
    from ray import train

    import forebay as fb

    context = train.get_context()
    rank, ranks = context.get_world_rank(), context.get_world_size()
    pipeline = fb.from_arrays(rows()).shuffle(seed=7).shard(rank, ranks).batch(20, drop_remainder=True)
    with pipeline.map(narrow, where="ray").feed("torch") as feed:
        numbers = [batch["number"].tolist() for batch in feed]
    np.save(f"{config['folder']}/{rank}.npy", np.array(numbers))
    batches = []
    with fb.from_arrays({"row": np.arange(41)}).shuffle(seed=5).shard("auto").batch(5).feed("torch") as feed:
        for batch in feed:
            batches.append(batch["row"].tolist())
            dist.all_reduce(torch.ones(1))
        record = {"batches": batches, "explain": feed.explain()}
    Path(config["folder"], f"{rank}.json").write_text(json.dumps(record))
    train.report({"batches": len(numbers)})
