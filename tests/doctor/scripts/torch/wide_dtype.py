"""The loop uploads NumPy's float64 data unconverted and converts it to float32 on the device."""

import numpy as np
import torch

device = "meta"  # stands in for an accelerator
signal = np.random.rand(1200, 2048)
model = torch.nn.Linear(2048, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(100):
    batch = torch.tensor(signal[step * 7 : step * 7 + 500]).to(device).float()
    loss = model(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
