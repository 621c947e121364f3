"""The profiler of PyTorch runs in few steps."""

import torch

model = torch.nn.Sequential(*[torch.nn.Linear(32, 32) for _ in range(4)])
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
rows = torch.rand(32, 32)
schedule = torch.profiler.schedule(wait=2, warmup=1, active=3, repeat=1)
with torch.profiler.profile(schedule=schedule) as profiler:
    for _ in range(60):
        loss = model(rows).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        profiler.step()
