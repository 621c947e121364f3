"""The script records `train` once as a CUDA graph. Each step replays this graph."""

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


if device == "cuda":
    warm_up_stream = torch.cuda.Stream()
    warm_up_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(warm_up_stream):  # PyTorch asks for a warm-up on another stream before a capture
        for _ in range(3):
            train()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        train()
    train = graph.replay

stopwatch = Stopwatch(torch.cuda.synchronize if device == "cuda" else None)
for step in range(steps):
    batch.copy_(rows[step * batch_rows : (step + 1) * batch_rows])
    train()
    stopwatch.lap()
stopwatch.print_step_time()
