"""The script fits a linear model to 100 points, too few for a GPU.

The doctor must report `faster_on_cpu` here.
"""

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
steps, points, features = 1500, 100, 8

x = torch.randn(points, features, device=device)
y = x.sum(dim=1, keepdim=True)
model = nn.Linear(features, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)

for _ in range(steps):
    loss = (model(x) - y).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
