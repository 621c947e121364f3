"""Each worker may start 128 threads. Most machines have fewer cores."""

import os

os.environ["OMP_NUM_THREADS"] = "128"

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __len__(self):
        return 60

    def __getitem__(self, index):
        return np.sort(np.random.rand(100_000)).astype("float32")[:64]


loader = DataLoader(Rows(), batch_size=1, num_workers=2)
model = torch.nn.Linear(64, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for rows in loader:
    loss = model(rows).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
