"""The loop waits for every loss before NumPy estimates the spread of the losses.

The doctor must report `read_back` here.
"""

import numpy as np
import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.set_float32_matmul_precision("high")
steps, rows, width = (120, 4096, 4096) if device == "cuda" else (20, 16, 16)

generator = np.random.default_rng(0)
batch = torch.randn(rows, width, device=device)
model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

losses, spreads = [], []
for _ in range(steps):
    loss = (model(batch) - batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    # Host work that can overlap with the device: a bootstrap of the mean of the losses.
    drawn = generator.choice(losses[-100:], (1000, 100))
    spreads.append(np.percentile(drawn.mean(axis=1), [5, 95]))
