"""The loader has default settings: no workers and pageable memory, so `non_blocking` copies block."""

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

device = "meta"  # stands in for an accelerator


class Rows(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return np.sort(self.rows[index]), index % 2


loader = DataLoader(Rows(np.random.rand(2048, 256).astype("float32")), batch_size=64, shuffle=True)
model = torch.nn.Linear(256, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(4):
    for rows, labels in loader:
        rows, labels = rows.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        loss = torch.nn.functional.cross_entropy(model(rows), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
