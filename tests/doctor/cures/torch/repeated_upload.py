"""The loop uploads constant positions in every step."""

import numpy as np
import torch
from stopwatch import Stopwatch
from torch import nn

torch.set_float32_matmul_precision("high")
device = "cuda" if torch.cuda.is_available() else "cpu"
steps, batch_rows, width = (400, 2048, 4096) if device == "cuda" else (60, 128, 256)

positions = np.random.default_rng(0).random((batch_rows, width), dtype="float32")
tokens = torch.randn(64 * batch_rows, width, device=device)
model = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 1))
model.to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

stopwatch = Stopwatch(torch.cuda.synchronize if device == "cuda" else None)
for step in range(steps):
    start = step % 64 * batch_rows
    batch = tokens[start : start + batch_rows]
    offsets = torch.from_numpy(positions).to(device)
    loss = model(batch + offsets).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    stopwatch.lap()
stopwatch.print_step_time()
