"""The script converts the recording to float32 once, which halves the uploaded bytes."""

import numpy as np
import torch
from stopwatch import Stopwatch
from torch import nn

torch.set_float32_matmul_precision("high")
device = "cuda" if torch.cuda.is_available() else "cpu"
steps, batch_rows, width = (400, 2048, 2048) if device == "cuda" else (60, 128, 256)

generator = np.random.default_rng(0)
recording = torch.from_numpy(generator.random((32 * batch_rows, width))).float()
model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
model.to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

stopwatch = Stopwatch(torch.cuda.synchronize if device == "cuda" else None)
for _ in range(steps):
    start = generator.integers(len(recording) - batch_rows)
    window = recording[start : start + batch_rows].to(device)
    loss = model(window).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    stopwatch.lap()
stopwatch.print_step_time()
