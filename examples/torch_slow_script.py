"""PyTorch: a slow training script for the doctor. Run it with `forebay doctor examples/torch_slow_script.py`.

A loader loads slow rows in the training process, and the loop reads the loss in every step.
"""

import sys
import time
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

ROWS, EPOCHS = (2_000, 1) if "--quick" in sys.argv else (8_000, 2)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class SlowRows(Dataset[Any]):
    """Rows that take half a millisecond each to load, like small images that a loader decodes."""

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, row: int) -> tuple[Any, int]:
        time.sleep(0.0005)
        return np.full(64, row % 10, np.float32), row % 10


def main() -> None:
    model = torch.nn.Linear(64, 10).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(SlowRows(), batch_size=32, shuffle=True)
    for epoch in range(EPOCHS):
        start, total = time.perf_counter(), 0.0
        for rows, labels in loader:
            loss = torch.nn.functional.cross_entropy(model(rows.to(DEVICE)), labels.to(DEVICE))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        step_seconds = (time.perf_counter() - start) / len(loader)
        mean = total / len(loader)
        print(f"epoch {epoch + 1} of {EPOCHS}: mean loss {mean:.3f}, {step_seconds * 1e3:.1f} ms per step")
    print(
        "Look at the first finding of `forebay doctor`: it names the line of the loop that waits for rows, and a cure."
    )
    if DEVICE == "cpu":
        print("PyTorch found no GPU. On a GPU, the report also shows for which share of the time the GPU was busy.")


if __name__ == "__main__":
    main()
