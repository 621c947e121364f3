"""The loop uploads the hundred features of every batch in separate copies."""

import numpy as np
import torch

device = "meta"  # stands in for an accelerator
table = {f"feature_{number}": np.random.rand(6400).astype("float32") for number in range(100)}
model = torch.nn.Linear(100, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(100):
    rows = slice(step * 64, (step + 1) * 64)
    columns = [torch.tensor(column[rows]).to(device) for column in table.values()]
    loss = model(torch.stack(columns, dim=1)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
