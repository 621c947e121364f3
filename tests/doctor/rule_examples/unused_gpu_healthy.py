"""The model and its batches are on the GPU if there is one."""

import torch

device = "cuda" if torch.cuda.is_available() else "cpu"
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)).to(device)
optimizer = torch.optim.Adam(model.parameters())
images, labels = torch.randn(64, 64), torch.randint(0, 10, (64,))
for _ in range(3000):
    loss = torch.nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
