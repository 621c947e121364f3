"""Every epoch uploads all images again, although they fit on the device.

The doctor must report `fits_on_device` here.
"""

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.set_float32_matmul_precision("high")
epochs, batch_rows, width = (8, 2048, 4096) if device == "cuda" else (2, 16, 16)

images = torch.randn(15 * batch_rows, width)
model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

losses = []
for _ in range(epochs):
    for rows in images.split(batch_rows):
        batch = rows.to(device)
        loss = (model(batch) - batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    losses.append(loss.item())
