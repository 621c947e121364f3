"""The device sums the losses. The script reads the sum after the loop."""

import torch

model = torch.nn.Linear(512, 512)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batch = torch.randn(64, 512)
total = torch.zeros(())
for _ in range(120):
    loss = model(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total += loss.detach()
mean = total.item() / 120
