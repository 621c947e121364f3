"""A persistent worker prefetches batches for a model that takes longer to compute."""

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return np.sort(self.rows[index]), index % 2


rows = Rows(np.random.rand(2048, 256).astype("float32"))
loader = DataLoader(rows, batch_size=64, shuffle=True, num_workers=1, prefetch_factor=8, persistent_workers=True)
model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(3):
    for batch, labels in loader:
        loss = torch.nn.functional.cross_entropy(model(batch), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
