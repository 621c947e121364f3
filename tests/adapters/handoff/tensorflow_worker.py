"""Run one worker of a MultiWorkerMirroredStrategy, and record sums of global batches."""

import json
import os
import sys
from pathlib import Path


def main(job):
    workers = [f"127.0.0.1:{port}" for port in job["workers"]]
    os.environ["TF_CONFIG"] = json.dumps(
        {"cluster": {"worker": workers}, "task": {"type": "worker", "index": job["rank"]}}
    )
    import numpy as np
    import tensorflow as tf

    import forebay as fb

    strategy = tf.distribute.MultiWorkerMirroredStrategy()

    @tf.function
    def step(batch):
        sums = strategy.run(lambda part: tf.reduce_sum(part), args=(batch,))
        return strategy.reduce("SUM", sums, axis=None)

    rows = fb.from_arrays(np.arange(64, dtype=np.int32)).shuffle(seed=0)
    with rows.shard("auto").batch(8).feed("tensorflow", device=strategy) as feed:
        record = {"sums": [int(step(batch)) for batch in feed], "explain": feed.explain(), "error": None}
    try:
        rows.shard(1 - job["rank"], 2).batch(8).feed("tensorflow", device=strategy)
    except fb.ForebayError as error:
        record["error"] = str(error)
    Path(job["out"]).write_text(json.dumps(record))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
