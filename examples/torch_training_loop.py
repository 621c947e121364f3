"""PyTorch: train with a DataLoader, then with a feed. Only the line that makes the batches differs."""

import sys
import time
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

import forebay as fb

ROWS, EPOCHS = (2_000, 2) if "--quick" in sys.argv else (50_000, 3)
BATCH_ROWS = 256
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def train(name: str, batches: Iterable[Any]) -> None:
    """Train a new model. The loop is the same for the DataLoader and the feed."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(32 * 32 * 3, 10)).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    for epoch in range(EPOCHS):
        start = time.perf_counter()
        for images, labels in batches:
            inputs, targets = images.to(DEVICE), labels.to(DEVICE)  # no copy for a feed: its batches are on DEVICE
            loss = torch.nn.functional.cross_entropy(model(inputs.float() / 255), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"{name}: epoch {epoch + 1} of {EPOCHS}, loss {loss.item():.3f}, {time.perf_counter() - start:.2f} s")


def main() -> None:
    random = np.random.default_rng(0)
    images = random.integers(0, 255, (ROWS, 32, 32, 3), dtype=np.uint8)
    labels = random.integers(0, 10, ROWS)

    dataset = TensorDataset(torch.from_numpy(images), torch.from_numpy(labels))
    train("DataLoader", DataLoader(dataset, BATCH_ROWS, shuffle=True, pin_memory=DEVICE == "cuda"))

    pipeline = fb.from_arrays((images, labels)).shuffle(seed=0).batch(BATCH_ROWS)
    with pipeline.feed("torch") as feed:
        train("feed", feed)
        waited = feed.stats()["wait_seconds"]

    if DEVICE == "cuda":
        print(f"Compare the seconds of the last epochs. In total, the loop waited {waited:.3f} s for the feed.")
    else:
        print("PyTorch found no GPU: model and loaders share the cores, so these times say nothing about a GPU.")
        print("On a GPU, compare the seconds of the last epochs: the difference is time that the GPU waited for rows.")


if __name__ == "__main__":
    main()
