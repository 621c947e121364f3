"""Run one rank: join the other ranks, and synchronize after every step."""

import itertools
import json
import os
import signal
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import numpy as np
from tests.pipeline.ranks.processes import LAUNCHER_VARIABLES

import forebay as fb
from forebay.pipeline.ranks import detect_rank

# Each function joins the other ranks and returns three functions. The first one waits for all ranks and returns their
# number. The second one leaves the process group. The third one returns a context manager; inside of it, Forebay can
# ask the framework for the rank.


def join_torch(job):
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo", f"file://{job['store']}", rank=job["rank"], world_size=job["count"])

    def synchronize():
        ones = torch.ones(1)
        dist.all_reduce(ones)
        return int(ones[0])

    return synchronize, dist.destroy_process_group, nullcontext


def join_jax(job):
    import jax
    from jax.experimental import multihost_utils

    jax.distributed.initialize(f"127.0.0.1:{job['port']}", num_processes=job["count"], process_id=job["rank"])
    return lambda: int(multihost_utils.process_allgather(np.ones(1)).sum()), jax.distributed.shutdown, nullcontext


def join_tensorflow(job):
    workers = [f"127.0.0.1:{port}" for port in job["workers"]]
    os.environ["TF_CONFIG"] = json.dumps(
        {"cluster": {"worker": workers}, "task": {"type": "worker", "index": job["rank"]}}
    )
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()

    @tf.function
    def synchronize():
        return strategy.reduce("SUM", strategy.run(lambda: tf.constant(1)), axis=None)

    return lambda: int(synchronize()), lambda: None, strategy.scope


def join_environment(job):
    """Set the variables of a launcher without importing a framework. Ranks synchronize through files."""
    index, count = LAUNCHER_VARIABLES[job.get("launcher", "torchrun")]
    os.environ |= {index: str(job["rank"]), count: str(job["count"])}
    folder, steps = Path(job["store"]), itertools.count()
    folder.mkdir(exist_ok=True)

    def synchronize():
        step = next(steps)
        (folder / f"{step}.{job['rank']}").touch()
        while (present := len([*folder.glob(f"{step}.*")])) < job["count"]:
            if (folder / "killed").exists():
                sys.exit(3)  # a launcher stops the other ranks when one rank has died
            time.sleep(0.005)
        return present

    return synchronize, lambda: None, nullcontext


JOIN = {"torch": join_torch, "jax": join_jax, "tensorflow": join_tensorflow, "numpy": join_environment}


def main(job):
    synchronize, leave, scope = JOIN[job["framework"]](job)
    pipeline = fb.from_arrays({"row": np.arange(job["rows"])}).shuffle(seed=5).shard("auto")
    feed = pipeline.batch(job["batch_rows"]).feed(job["framework"])
    with scope():
        job["reported_in_scope"] = detect_rank().reported_by
    if "state" in job:
        feed.load_state_dict(job["state"])
    batches, present_ranks = [], []
    for batch in feed:
        batches.append(np.asarray(batch["row"]).tolist())
        if job.get("dies") == [job["rank"], len(batches)]:
            write(job, batches, present_ranks, feed)
            os._exit(7)
        if "dies" not in job:
            kill_if_requested(job, len(batches))
            present_ranks.append(synchronize())
            write(job, batches, present_ranks, feed)
        if len(batches) == job.get("steps"):
            break
    write(job, batches, present_ranks, feed)
    if "dies" in job:
        os._exit(0)  # skip the exit handlers, which would wait for dead ranks
    synchronize()
    leave()


def kill_if_requested(job, step):
    """Kill this rank without any clean-up, if the job names this rank and step."""
    if job.get("killed") == [job["rank"], step]:
        (Path(job["store"]) / "killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)


def write(job, batches, present_ranks, feed):
    record = {"batches": batches, "present_ranks": present_ranks, "state": feed.state_dict(), "explain": feed.explain()}
    record["reported_in_scope"] = job["reported_in_scope"]
    Path(job["out"]).write_text(json.dumps(record))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
