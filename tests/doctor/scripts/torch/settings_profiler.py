"""The profiler of PyTorch runs in every step, and the script never reads its records."""

import torch

model = torch.nn.Sequential(*[torch.nn.Linear(32, 32) for _ in range(4)])
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
rows = torch.rand(32, 32)
with torch.profiler.profile() as profiler:
    for _ in range(60):
        loss = model(rows).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
