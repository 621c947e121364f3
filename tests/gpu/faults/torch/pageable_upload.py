"""The loop uploads windows of a recording from pageable memory and waits for each copy.

The doctor must report `pageable_upload` here.
"""

import random

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.set_float32_matmul_precision("high")
steps, rows, width = (150, 2048, 4096) if device == "cuda" else (20, 16, 16)

recording = torch.rand(16 * rows, width)
model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

losses = []
for step in range(steps):
    start = random.randrange(15 * rows)
    window = recording[start : start + rows].to(device)
    loss = (model(window) - window).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        losses.append(loss.item())
