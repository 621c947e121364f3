"""The loop keeps the predictions of every step on the device, with their autograd graphs.

The doctor must report `out_of_memory` here.
"""

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.set_float32_matmul_precision("high")
steps, rows, width = (90, 2048, 4096) if device == "cuda" else (20, 16, 16)

batch = torch.randn(rows, width, device=device)
model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

predictions, losses = [], []
for step in range(steps):
    predicted = model(batch)
    loss = (predicted - batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    predictions.append(predicted)
    if step % 10 == 9:
        losses.append(loss.item())
