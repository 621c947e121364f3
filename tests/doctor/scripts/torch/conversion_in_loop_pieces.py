"""PyTorch makes every batch from a list of NumPy arrays, and converts each number separately."""

import numpy as np
import torch

readings = np.random.default_rng(0).random((6400, 200), "float32")
model = torch.nn.Linear(200, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(100):
    batch = torch.tensor([readings[row] for row in range(step * 64, (step + 1) * 64)])
    loss = model(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
