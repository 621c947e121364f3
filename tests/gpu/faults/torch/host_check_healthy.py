"""The device counts NaN values. The loop reads the count in every tenth step.

The doctor must not report `host_check` here.
"""

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.set_float32_matmul_precision("high")
steps, rows, width = (100, 2048, 4096) if device == "cuda" else (20, 16, 16)

batch = torch.randn(rows, width, device=device)
model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

wrong = torch.zeros((), device=device)
for step in range(steps):
    predicted = model(batch)
    wrong += predicted.detach().isnan().sum()
    if step % 10 == 9 and wrong.item():
        raise FloatingPointError(f"step {step}")
    loss = (predicted - batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
