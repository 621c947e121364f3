"""The function calls sys.stdout.write and branches on a tensor, so torch.compile splits its graph."""

import sys

import torch

model = torch.nn.Linear(16, 16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
rows = torch.rand(32, 16)


@torch.compile(backend="eager")
def loss_of(rows):
    loss = model(rows).square().mean()
    sys.stdout.write("")
    if loss > 1e6:
        loss = loss * 0.1
    return loss


for _ in range(60):
    loss = loss_of(rows)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
