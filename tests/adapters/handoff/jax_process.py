"""Run one process of JAX: feed global arrays over the devices of all processes, and record their rows."""

import json
import sys
from pathlib import Path

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

import forebay as fb


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
    Path(job["out"]).write_text(json.dumps(record | {"errors": errors}))
    if job["count"] > 1:
        jax.distributed.shutdown()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
