"""The step computes cumulative sums of four long signals.

Its kernels use at most one thread block per signal.

The doctor must report `low_occupancy` here.
"""

import torch

device = "cuda" if torch.cuda.is_available() else "cpu"
steps, signals, length = (100, 4, 1_000_000) if device == "cuda" else (20, 4, 1_000)

waves = torch.randn(signals, length, device=device) * 1e-3
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
