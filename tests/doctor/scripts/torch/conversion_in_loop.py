"""The loop converts every batch from Python lists to a tensor."""

import random

import torch

readings = [[random.random() for _ in range(200)] for _ in range(6400)]
model = torch.nn.Linear(200, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(100):
    batch = torch.tensor(readings[step * 64 : (step + 1) * 64])
    loss = model(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
