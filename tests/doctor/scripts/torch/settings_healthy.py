"""The script turns anomaly mode on only to check a first step."""

import torch

model = torch.nn.Sequential(*[torch.nn.Linear(32, 32) for _ in range(4)])
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
rows = torch.rand(32, 32)
with torch.autograd.set_detect_anomaly(True):
    model(rows).square().mean().backward()
for _ in range(60):
    loss = model(rows).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
