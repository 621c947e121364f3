"""A deep, narrow network: the device finishes each operation before Python launches the next."""

import torch
from stopwatch import Stopwatch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
steps, batch_rows, width, depth = (1000, 256, 256, 24) if device == "cuda" else (60, 64, 64, 24)

rows = torch.randn(1000 * batch_rows, width, device=device)
model = nn.Sequential(*[layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.ReLU())])
model.to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
batch = rows[:batch_rows].clone()


def train():
    loss = (model(batch) - batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


stopwatch = Stopwatch(torch.cuda.synchronize if device == "cuda" else None)
for step in range(steps):
    batch.copy_(rows[step * batch_rows : (step + 1) * batch_rows])
    train()
    stopwatch.lap()
stopwatch.print_step_time()
