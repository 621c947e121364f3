"""A second stream uploads each window from page-locked memory during the previous step.

The doctor must not report `pageable_upload` here.
"""

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
copy_stream = torch.cuda.Stream() if device == "cuda" else None


def fetch():
    start = random.randrange(15 * rows)
    with torch.cuda.stream(copy_stream):
        return recording[start : start + rows].to(device, non_blocking=True)


losses = []
next_window = fetch()
for step in range(steps):
    window = next_window
    if copy_stream is not None:
        torch.cuda.current_stream().wait_stream(copy_stream)
        window.record_stream(torch.cuda.current_stream())
    next_window = fetch()
    loss = (model(window) - window).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        losses.append(loss.item())
