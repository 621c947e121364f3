"""The loop saves the model only in its first step."""

import tempfile

import torch

model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batch = torch.randn(16, 512)
with tempfile.TemporaryDirectory() as folder:
    for step in range(400):
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 1000 == 0:
            torch.save(model.state_dict(), f"{folder}/model.pt")
