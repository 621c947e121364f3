"""One worker process per core crops, flips and adjusts photos before the loop needs them."""

import os
import random

import numpy as np
import torch
from stopwatch import Stopwatch
from torch import nn
from torch.utils.data import DataLoader, Dataset

device = "cuda" if torch.cuda.is_available() else "cpu"
steps, batch_rows, side, channels = (300, 128, 48, 128) if device == "cuda" else (40, 16, 16, 8)


class Photos(Dataset):
    def __init__(self):
        self.pixels = np.random.default_rng(0).integers(0, 255, (8192, 3, side + 16, side + 16), dtype=np.uint8)

    def __len__(self):
        return steps * batch_rows

    def __getitem__(self, index):
        top, left = random.randrange(16), random.randrange(16)
        photo = self.pixels[index % len(self.pixels), :, top : top + side, left : left + side].astype(np.float32) / 255
        photo = photo[:, :, ::-1] if random.random() < 0.5 else photo
        photo = photo ** random.uniform(0.8, 1.2)
        spread = photo.std(axis=(1, 2), keepdims=True) + 1e-6
        return (photo - photo.mean(axis=(1, 2), keepdims=True)) / spread, index % 10


layers, inputs = [], 3
for _ in range(4):
    layers += [nn.Conv2d(inputs, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU()]
    inputs = channels
model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
workers = {"num_workers": os.cpu_count(), "persistent_workers": True}
loader = DataLoader(Photos(), batch_rows, shuffle=True, pin_memory=device == "cuda", **workers)

stopwatch = Stopwatch(torch.cuda.synchronize if device == "cuda" else None)
for photos, labels in loader:
    photos, labels = photos.to(device, non_blocking=True), labels.to(device, non_blocking=True)
    loss = nn.functional.cross_entropy(model(photos), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    stopwatch.lap()
stopwatch.print_step_time()
