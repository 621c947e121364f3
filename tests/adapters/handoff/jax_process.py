"""Run one process of JAX, and record the rows of its global arrays."""

import itertools
import json
import sys
from pathlib import Path

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import forebay as fb


def wrong_shardings():
    """Return the shardings with which a feed gives other arrays than `jax.device_put`."""
    rows = np.arange(32 * 8 * 4, dtype=np.float32).reshape(32, 8, 4)
    axes = ("a", "b", "c", None, ("a", "b"), ("b", "a"), ("c", "a"), ("a", "b", "c"))
    wrong = []
    for lengths, devices in itertools.product(((2, 2, 2), (1, 4, 2), (8, 1, 1)), (jax.devices(), jax.devices()[::-1])):
        mesh = Mesh(np.array(devices).reshape(lengths), ("a", "b", "c"))
        for spec in itertools.product(axes, (None, "b", "c"), (None, "c")):
            named = [name for axis in spec if axis for name in axis]  # all names have one character
            if len({*named}) < len(named):
                continue
            sharding = NamedSharding(mesh, PartitionSpec(*spec))
            with fb.from_arrays(rows).batch(16).feed("jax", device=sharding) as feed:
                for number, batch in enumerate(feed):
                    expected = jax.device_put(rows[number * 16 : number * 16 + 16], sharding)
                    pairs = zip(batch.addressable_shards, expected.addressable_shards, strict=True)
                    same = [one.device == two.device and np.array_equal(one.data, two.data) for one, two in pairs]
                    if not all(same) or batch.sharding != sharding:
                        wrong.append(str(sharding))
    return wrong


def main(job):
    if job["count"] > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"127.0.0.1:{job['port']}", num_processes=job["count"], process_id=job["rank"])
    mesh = jax.make_mesh((len(jax.devices()),), ("data",))
    sharding = NamedSharding(mesh, PartitionSpec("data"))
    gather = jax.jit(lambda array: array, out_shardings=NamedSharding(mesh, PartitionSpec()))
    pipeline = fb.from_arrays({"row": np.arange(job["rows"])}).shuffle(seed=5).shard("auto")
    batches, errors = [], []
    with pipeline.batch(job["batch_rows"]).feed("jax", device=sharding) as feed:
        if "state" in job:
            feed.load_state_dict(job["state"])
        for batch in feed:
            parts = [shard.data.shape for shard in batch["row"].addressable_shards]
            batches.append({"rows": np.asarray(gather(batch["row"])).tolist(), "parts": parts})
            if len(batches) == job.get("steps"):
                break
        record = {"batches": batches, "state": feed.state_dict(), "explain": feed.explain()}
    if job["count"] > 1:
        for spec, shard in ((PartitionSpec(), "auto"), (PartitionSpec("data"), (1 - job["rank"], 2))):
            pipeline = fb.from_arrays(np.zeros(64)).shard(*([shard] if shard == "auto" else shard)).batch(8)
            try:
                pipeline.feed("jax", device=NamedSharding(mesh, spec))
            except fb.ForebayError as error:
                errors.append(str(error))
    record |= {"errors": errors, "wrong": wrong_shardings() if job.get("check_placements") else None}
    Path(job["out"]).write_text(json.dumps(record))
    if job["count"] > 1:
        jax.distributed.shutdown()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
