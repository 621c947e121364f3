"""Feed two Ray Train workers their shards of an epoch, and write the batches they received."""

import json
import sys
from pathlib import Path

import ray
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

FOLDER = Path(sys.argv[1])


def train(config):
    import numpy as np
    import torch
    import torch.distributed as dist

    import forebay as fb

    feed = fb.from_arrays({"row": np.arange(41)}).shuffle(seed=5).shard("auto").batch(5).feed("torch")
    batches = []
    for batch in feed:
        batches.append(batch["row"].tolist())
        dist.all_reduce(torch.ones(1))
    record = {"batches": batches, "explain": feed.explain()}
    rank = ray.train.get_context().get_world_rank()
    Path(config["folder"], f"{rank}.json").write_text(json.dumps(record))


ray.init("local", num_cpus=2, include_dashboard=False, object_store_memory=100 << 20, _temp_dir=sys.argv[2])
trainer = TorchTrainer(
    train,
    train_loop_config={"folder": str(FOLDER)},
    scaling_config=ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5}),
    run_config=RunConfig(name="ranks", storage_path=str(FOLDER / "runs")),
)
trainer.fit()
ray.shutdown()
