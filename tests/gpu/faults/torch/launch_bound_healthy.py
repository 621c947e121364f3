"""The script records the whole step once as a CUDA graph.

Each step replays this graph.

The doctor must not report `launch_bound` here.
"""

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
steps, rows, width, depth = (1500, 512, 256, 20) if device == "cuda" else (20, 16, 16, 4)

batch = torch.randn(rows, width, device=device)
model = nn.Sequential(*[layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.Tanh())]).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)


def train():
    optimizer.zero_grad()
    loss = (model(batch) - batch).square().mean()
    loss.backward()
    optimizer.step()


if device == "cuda":
    warm_up_stream = torch.cuda.Stream()  # PyTorch requires a warm-up on another stream before a capture
    warm_up_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(warm_up_stream):
        train()
    torch.cuda.current_stream().wait_stream(warm_up_stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        train()
    train = graph.replay

for step in range(steps):
    train()
    if device == "cuda" and step % 10 == 9:
        torch.cuda.synchronize()
