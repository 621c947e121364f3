"""The compiled function is one graph: torch.where selects, and the loop calls sys.stdout.write."""

import sys

import torch

model = torch.nn.Linear(16, 16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
rows = torch.rand(32, 16)


@torch.compile(backend="eager")
def loss_of(rows):
    loss = model(rows).square().mean()
    return torch.where(loss > 1e6, loss * 0.1, loss)


for _ in range(60):
    loss = loss_of(rows)
    sys.stdout.write("")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
