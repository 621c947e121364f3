"""The model and its batches stay on the CPU."""

import torch

device = "cpu"
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)).to(device)
optimizer = torch.optim.Adam(model.parameters())
images, labels = torch.randn(64, 64), torch.randint(0, 10, (64,))
for _ in range(3000):
    loss = torch.nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
