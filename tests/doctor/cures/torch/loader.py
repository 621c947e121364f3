"""The loader has no workers, so the loop computes every row itself. Batches are not page-locked."""

import numpy as np
import torch
from stopwatch import Stopwatch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_float32_matmul_precision("high")
device = "cuda" if torch.cuda.is_available() else "cpu"
steps, batch_rows, side, width = (300, 256, 64, 4096) if device == "cuda" else (60, 32, 16, 128)


class Pictures(Dataset):
    def __init__(self):
        self.pixels = np.random.default_rng(0).integers(0, 255, (4096, 3, side, side), dtype=np.uint8)

    def __len__(self):
        return steps * batch_rows

    def __getitem__(self, index):
        picture = self.pixels[index % len(self.pixels)].astype(np.float32) / 255
        picture = picture[:, :, ::-1] if index % 2 else picture
        return (picture - picture.mean()) / (picture.std() + 1e-6), np.float32(index % 10)


layers = [nn.Flatten(), nn.Linear(3 * side * side, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()]
model = nn.Sequential(*layers, nn.Linear(width, 1)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
loader = DataLoader(Pictures(), batch_size=batch_rows, shuffle=True)

stopwatch = Stopwatch(torch.cuda.synchronize if device == "cuda" else None)
for pictures, labels in loader:
    pictures, labels = pictures.to(device), labels.to(device)
    loss = (model(pictures).squeeze(1) - labels).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    stopwatch.lap()
stopwatch.print_step_time()
