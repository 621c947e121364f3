"""A second stream copies the next window while the step runs."""

import random

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.set_float32_matmul_precision("high")
steps, rows, width = (150, 2048, 4096) if device == "cuda" else (20, 16, 16)

recording = torch.rand(16 * rows, width)
if device == "cuda":
    recording = recording.pin_memory()
model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
copies = torch.cuda.Stream() if device == "cuda" else None


def fetch():
    start = random.randrange(15 * rows)
    with torch.cuda.stream(copies):
        return recording[start : start + rows].to(device, non_blocking=True)


losses = []
coming = fetch()
for step in range(steps):
    window = coming
    if copies is not None:
        torch.cuda.current_stream().wait_stream(copies)
        window.record_stream(torch.cuda.current_stream())
    coming = fetch()
    loss = (model(window) - window).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        losses.append(loss.item())
