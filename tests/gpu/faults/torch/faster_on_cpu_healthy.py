"""The script fits a linear model to 65,536 points, enough for a GPU.

The doctor must not report `faster_on_cpu` here.
"""

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.set_float32_matmul_precision("high")
steps, points, features = (150, 65_536, 1024) if device == "cuda" else (20, 100, 8)

x = torch.randn(points, features, device=device)
y = x.roll(1, dims=1)
model = nn.Linear(features, features).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)

losses = []
for step in range(steps):
    loss = (model(x) - y).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        losses.append(loss.item())
