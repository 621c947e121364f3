"""The loop creates a new loader, with a new worker process, for every batch."""

import torch
from torch.utils.data import DataLoader, TensorDataset

dataset = TensorDataset(torch.rand(2560, 32), torch.rand(2560, 1))
model = torch.nn.Sequential(torch.nn.Linear(32, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 2048))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(12):
    batch, target = next(iter(DataLoader(dataset, batch_size=64, shuffle=True, num_workers=1)))
    loss = torch.nn.functional.mse_loss(model(batch), target.expand(-1, 2048))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
