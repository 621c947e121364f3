"""The script converts the data to float32, the dtype of the model, before the loop."""

import numpy as np
import torch

device = "meta"  # stands in for an accelerator
signal = torch.from_numpy(np.random.rand(1200, 2048).astype("float32"))
model = torch.nn.Linear(2048, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(100):
    batch = signal[step * 7 : step * 7 + 500].to(device)
    loss = model(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
