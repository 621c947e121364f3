"""The loop uploads heartbeats as float64 and converts them to float32 on the device."""

import numpy as np
import torch
from stopwatch import Stopwatch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
steps, batch_rows, leads, length = (500, 128, 12, 2048) if device == "cuda" else (60, 16, 4, 256)

generator = np.random.default_rng(0)
heartbeats = generator.random((16 * batch_rows, leads, length))
layers = [nn.Conv1d(leads, 64, 9, stride=2), nn.ReLU(), nn.Conv1d(64, 128, 9, stride=2), nn.ReLU()]
layers += [nn.Conv1d(128, 256, 9, stride=2), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(256, 1)]
model = nn.Sequential(*layers).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)

stopwatch = Stopwatch(torch.cuda.synchronize if device == "cuda" else None)
for _ in range(steps):
    start = generator.integers(len(heartbeats) - batch_rows)
    batch = torch.from_numpy(heartbeats[start : start + batch_rows]).to(device).float()
    loss = model(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    stopwatch.lap()
stopwatch.print_step_time()
