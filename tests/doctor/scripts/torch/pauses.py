"""The loop saves the model every 20 steps. A save takes much longer than a step."""

import tempfile

import torch

torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256))
moments = {f"moment {number}": torch.zeros(1 << 20) for number in range(4)}
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batch = torch.randn(256, 256)


def save_checkpoint(path):
    torch.save({"model": model.state_dict(), "moments": moments}, path)


with tempfile.TemporaryDirectory() as folder:
    for step in range(260):
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 19:
            save_checkpoint(f"{folder}/model.pt")
