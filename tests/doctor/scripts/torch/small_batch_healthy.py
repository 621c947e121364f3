"""Batches are large enough to outweigh the overhead of a step."""

import torch
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler, TensorDataset

dataset = TensorDataset(torch.rand(120 * 256, 20), torch.rand(120 * 256, 1))
batches = BatchSampler(SequentialSampler(dataset), batch_size=256, drop_last=True)
loader = DataLoader(dataset, sampler=batches, batch_size=None)
model = torch.nn.Sequential(torch.nn.Linear(20, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for batch, target in loader:
    loss = torch.nn.functional.mse_loss(model(batch), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
