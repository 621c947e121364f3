"""One loader serves the whole run and indexes the dataset one batch at a time."""

import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

dataset = TensorDataset(torch.rand(2560, 32), torch.rand(2560, 1))
batches = BatchSampler(RandomSampler(dataset), batch_size=64, drop_last=True)
loader = DataLoader(dataset, sampler=batches, batch_size=None)
model = torch.nn.Sequential(torch.nn.Linear(32, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 2048))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for batch, target in loader:
    loss = torch.nn.functional.mse_loss(model(batch), target.expand(-1, 2048))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
