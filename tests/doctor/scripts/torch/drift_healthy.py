"""The loop keeps a running mean of its outputs."""

import torch

torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(128, 128), torch.nn.ReLU(), torch.nn.Linear(128, 128))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batch = torch.randn(64, 128)
mean = torch.zeros(64, 128)
for step in range(300):
    output = model(batch)
    optimizer.zero_grad()
    output.square().mean().backward()
    optimizer.step()
    mean += (output.detach() - mean) / (step + 1)
