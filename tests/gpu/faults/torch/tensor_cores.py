"""The model multiplies matrices in float32, the default of PyTorch, without the tensor cores.

The doctor must report `tensor_cores` here.
"""

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
steps, rows, width = (100, 4096, 4096) if device == "cuda" else (20, 16, 16)

batch = torch.randn(rows, width, device=device)
model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

losses = []
for step in range(steps):
    loss = (model(batch) - batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        losses.append(loss.item())
