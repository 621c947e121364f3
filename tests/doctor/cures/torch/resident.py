"""The loop gathers and uploads every batch, although the whole dataset fits on the device."""

import numpy as np
import torch
from stopwatch import Stopwatch
from torch import nn

torch.set_float32_matmul_precision("high")
device = "cuda" if torch.cuda.is_available() else "cpu"
steps, rows, batch_rows, width, wide = (400, 60_000, 4096, 1024, 4096) if device == "cuda" else (60, 6000, 128, 64, 256)

generator = np.random.default_rng(0)
images = generator.random((rows, width), dtype="float32")
model = nn.Sequential(nn.Linear(width, wide), nn.ReLU(), nn.Linear(wide, wide), nn.ReLU(), nn.Linear(wide, 1))
model.to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

stopwatch = Stopwatch(torch.cuda.synchronize if device == "cuda" else None)
for _ in range(steps):
    drawn = generator.integers(0, rows, batch_rows)
    batch = torch.from_numpy(images[drawn]).to(device)
    loss = model(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    stopwatch.lap()
stopwatch.print_step_time()
