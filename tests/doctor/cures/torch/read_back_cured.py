"""Losses stay on the device, and the loop reads fifty of them at a time."""

import numpy as np
import torch
from stopwatch import Stopwatch
from torch import nn

torch.set_float32_matmul_precision("high")
device = "cuda" if torch.cuda.is_available() else "cpu"
steps, rows, batch_rows, width = (600, 100_000, 8192, 2048) if device == "cuda" else (60, 20_000, 128, 256)

generator = np.random.default_rng(0)
images = torch.randn(rows, width, device=device)
model = nn.Sequential(*[layer for _ in range(4) for layer in (nn.Linear(width, width), nn.ReLU())], nn.Linear(width, 1))
model.to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

losses, unread = [], []
stopwatch = Stopwatch(torch.cuda.synchronize if device == "cuda" else None)
for _ in range(steps):
    drawn = torch.from_numpy(generator.permutation(rows)[:batch_rows])
    drawn = drawn.pin_memory() if device == "cuda" else drawn
    batch = images[drawn.to(device, non_blocking=True)]
    loss = (model(batch) - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    unread.append(loss.detach())
    if len(unread) == 50:
        losses += torch.stack(unread).tolist()
        unread.clear()
    stopwatch.lap()
stopwatch.print_step_time()
