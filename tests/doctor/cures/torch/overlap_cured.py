"""A second stream copies the next window of the recording while the step runs."""

import numpy as np
import torch
from stopwatch import Stopwatch
from torch import nn

torch.set_float32_matmul_precision("high")
device = "cuda" if torch.cuda.is_available() else "cpu"
steps, batch_rows, width = (400, 2048, 4096) if device == "cuda" else (60, 128, 256)

generator = np.random.default_rng(0)
recording = torch.from_numpy(generator.random((32 * batch_rows, width), dtype="float32"))
model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
if device == "cuda":
    recording = recording.pin_memory()
model.to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
copy_stream = torch.cuda.Stream() if device == "cuda" else None


def fetch():
    start = generator.integers(len(recording) - batch_rows)
    with torch.cuda.stream(copy_stream):
        return recording[start : start + batch_rows].to(device, non_blocking=True)


next_window = fetch()
stopwatch = Stopwatch(torch.cuda.synchronize if device == "cuda" else None)
for _ in range(steps):
    window = next_window
    if copy_stream is not None:
        torch.cuda.current_stream().wait_stream(copy_stream)
        window.record_stream(torch.cuda.current_stream())
    next_window = fetch()
    loss = model(window).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    stopwatch.lap()
stopwatch.print_step_time()
