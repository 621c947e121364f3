"""The click log is in page-locked memory, so the loop uploads slices without waiting."""

import numpy as np
import torch
from stopwatch import Stopwatch
from torch import nn

torch.set_float32_matmul_precision("high")
device = "cuda" if torch.cuda.is_available() else "cpu"
steps, batch_rows, fields, items = (500, 131_072, 24, 200_000) if device == "cuda" else (60, 512, 8, 1000)

generator = np.random.default_rng(0)
log = torch.from_numpy(generator.integers(0, items, (16 * batch_rows, 1 + fields), dtype="int32"))
if device == "cuda":
    log = log.pin_memory()
table = nn.EmbeddingBag(items, 32, mode="sum")
model = nn.Sequential(table, nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1))
model.to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

stopwatch = Stopwatch(torch.cuda.synchronize if device == "cuda" else None)
for _ in range(steps):
    start = generator.integers(len(log) - batch_rows)
    clicks = log[start : start + batch_rows].to(device, non_blocking=True)
    clicked = (clicks[:, 0] % 2).float()
    loss = nn.functional.binary_cross_entropy_with_logits(model(clicks[:, 1:]).squeeze(1), clicked)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    stopwatch.lap()
stopwatch.print_step_time()
