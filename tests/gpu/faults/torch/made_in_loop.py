"""NumPy makes each batch between two steps, while the device is idle.

The doctor must report `made_in_loop` here.
"""

import numpy as np
import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.set_float32_matmul_precision("high")
steps, rows, width = 200, 256, 512

generator = np.random.default_rng(0)
model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)


def draw():
    return generator.normal(size=(4, rows, width)).mean(axis=0).astype("float32")


for _ in range(steps):
    signals = draw()
    batch = torch.from_numpy(signals).to(device)
    loss = (model(batch) - batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
