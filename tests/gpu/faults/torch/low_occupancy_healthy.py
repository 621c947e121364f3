"""The step computes cumulative sums of many short windows, which run in parallel.

The doctor must not report `low_occupancy` here.
"""

import torch

device = "cuda" if torch.cuda.is_available() else "cpu"
steps, windows, length = (150, 65_536, 1_000) if device == "cuda" else (20, 40, 100)

waves = torch.randn(windows, length, device=device) * 1e-3
gain = torch.ones((), device=device, requires_grad=True)
optimizer = torch.optim.SGD([gain], lr=1e-3)

losses = []
for step in range(steps):
    loss = (gain * waves).cumsum(dim=1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        losses.append(loss.item())
