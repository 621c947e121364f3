"""The loop reads all predictions back in every step, and NumPy checks them for NaN.

The doctor must report `host_check` here.
"""

import numpy as np
import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.set_float32_matmul_precision("high")
steps, rows, width = (100, 2048, 4096) if device == "cuda" else (20, 16, 16)

batch = torch.randn(rows, width, device=device)
model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

for step in range(steps):
    predicted = model(batch)
    if np.isnan(predicted.detach().cpu().numpy()).any():
        raise FloatingPointError(f"step {step}")
    loss = (predicted - batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
