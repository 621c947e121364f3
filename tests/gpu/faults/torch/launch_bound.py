"""A deep, narrow network: the device finishes each operation before Python launches the next.

The doctor must report `launch_bound` here.
"""

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
steps, rows, width, depth = (150, 512, 256, 20) if device == "cuda" else (20, 16, 16, 4)

batch = torch.randn(rows, width, device=device)
model = nn.Sequential(*[layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.Tanh())]).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)


def train():
    optimizer.zero_grad()
    loss = (model(batch) - batch).square().mean()
    loss.backward()
    optimizer.step()


for _ in range(steps):
    train()
