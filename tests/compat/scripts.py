"""Input of the fixtures: training scripts for the doctor, and a scenario."""

__all__ = ["SCALE_RUNS", "SCENARIO", "SCRIPTS"]

SCRIPTS = {
    "torch": """\
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, row):
        time.sleep(0.0005)
        return torch.full((64,), float(row)), torch.tensor([float(row)])


torch.set_num_threads(1)
model = torch.nn.Linear(64, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
for epoch in range(3):
    for pictures, labels in DataLoader(Pictures(), batch_size=8, shuffle=True):
        loss = torch.nn.functional.mse_loss(model(pictures), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
""",
    "jax": """\
import jax
import jax.numpy as jnp
import numpy as np

table = np.random.default_rng(0).random((512, 1024), dtype=np.float32)


@jax.jit
def step(weights, data):
    return weights + data.mean(axis=0) * 1e-3


weights = jnp.zeros(1024)
losses = []
for _ in range(80):
    data = jnp.asarray(table)
    weights = step(weights, data)
    losses.append(float(weights.sum()))
""",
}

# A scenario of `forebay scale` that sets every field of every section.
SCENARIO = """\
title = "records of 2 KB from a store, half of them cached"
hosts = 2

[data]
rows = 2e6
row_nbytes = 2_000
fed_row_nbytes = 2_500
source = "store"
cached_share = 0.5

[training]
batch_rows = 512
compute_seconds = 4e-3
compute_jitter = 0.05
all_reduce_seconds = 1e-4
prefetch = 3

[maps]
where = "host"
seconds_per_row = 2e-5
seconds_per_batch = 1e-4
jitter = 0.2

[host]
gpus = 4
workers = 16
link_bytes_per_second = 20e9
link_seconds = 1e-5
gpus_per_switch = 2
switch_bytes_per_second = 25e9
memory_bytes_per_second = 100e9
disk_bytes_per_second = 2e9
network_bytes_per_second = 3e9
taking_seconds = 2e-5

[store]
bytes_per_second = 10e9
connections = 32
connection_bytes_per_second = 90e6
request_nbytes = 1e6
latency_seconds = 0.02
jitter = 0.5
ahead_nbytes = 1e8

[remote]
nodes = 2
workers = 8
network_bytes_per_second = 1e9
in_flight = 4
seconds_per_batch = 1e-4
"""

# Arguments of each run of `forebay scale`; few steps, so that a run takes a second.
SCALE_RUNS: dict[str, tuple[str, ...]] = {
    "own_scenario": ("scenario.toml", "--steps", "40"),
    "own_scenario_changed": (
        *("scenario.toml", "--steps", "40", "--seed", "1", "--hosts", "3"),
        *("--set", "maps.where=remote", "--set", "store.latency_seconds=0.01"),
    ),
    "known_scenario_tables": ("tables", "--steps", "40"),
    "known_scenario_images": ("images", "--steps", "40"),
    "known_scenario_tokens": ("tokens", "--steps", "40"),
}
