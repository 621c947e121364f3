"""Steps of PyTorch trainers, for `trainer_overhead.py`."""

import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import torch

import forebay as fb

__all__ = ["TRAINERS", "make_loaders"]

BATCH, SHAPE = 256, (3, 64, 64)


def make_loaders(steps: int, device: str) -> dict[str, Any]:
    """Return a loader that repeats one batch, and two loaders of Forebay."""
    generator = np.random.default_rng(0)
    rows = BATCH * steps
    data = {"x": generator.random((rows, *SHAPE), dtype=np.float32), "labels": generator.integers(0, 10, rows)}
    pipeline = fb.from_arrays(data).shuffle(seed=0).batch(BATCH)
    return {
        "one batch": RepeatedBatch(steps, device),
        "forebay streamed": pipeline.feed("loader", device=device, resident="never"),
        "forebay": pipeline.feed("loader", device=device),
    }


def wait_for_device() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


class RepeatedBatch(torch.utils.data.DataLoader[Any]):
    """A loader that repeats one batch on the device."""

    def __init__(self, steps: int, device: str) -> None:
        super().__init__(list(range(steps)), batch_size=1)
        self._batch = {
            "x": torch.rand((BATCH, *SHAPE), device=device),
            "labels": torch.randint(0, 10, (BATCH,), device=device),
        }

    def __iter__(self) -> Iterator[Any]:
        return (self._batch for _ in range(len(self)))


class Net(torch.nn.Module):
    """A convolutional network whose step takes a few milliseconds."""

    def __init__(self) -> None:
        super().__init__()
        channels = (3, 64, 128, 256)
        blocks = [
            torch.nn.Sequential(torch.nn.Conv2d(before, after, 3, 2, 1), torch.nn.BatchNorm2d(after), torch.nn.ReLU())
            for before, after in pairwise(channels)
        ]
        self.layers = torch.nn.Sequential(*blocks, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
        self.head = torch.nn.Linear(channels[-1], 10)

    def forward(self, x: Any, labels: Any) -> dict[str, Any]:
        return {"loss": torch.nn.functional.cross_entropy(self.head(self.layers(x)), labels)}


def run_lightning(loader: Any) -> list[float]:
    import lightning

    class Model(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()

        def training_step(self, batch: Any, index: int) -> Any:
            return self.net(**batch)["loss"]

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    class Clock(lightning.Callback):
        times: list[float]

        def on_train_start(self, *_: Any) -> None:
            self.times = []

        def on_train_batch_end(self, *_: Any) -> None:
            wait_for_device()
            self.times.append(time.perf_counter())

    clock = Clock()
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    lightning.Trainer(max_epochs=1, accelerator="auto", devices=1, callbacks=[clock], **quiet).fit(Model(), loader)
    return np.diff(clock.times).tolist()


def run_transformers(loader: Any) -> list[float]:
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class LoaderTrainer(Trainer):
        def get_train_dataloader(self) -> Any:
            return self.train_dataset  # also the repeated batch

    class Clock(TrainerCallback):
        def __init__(self) -> None:
            self.times: list[float] = []

        def on_step_end(self, *_: Any, **__: Any) -> None:
            wait_for_device()
            self.times.append(time.perf_counter())

    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            num_train_epochs=1,
            per_device_train_batch_size=BATCH,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
        )
        LoaderTrainer(Net(), arguments, train_dataset=loader, callbacks=[clock]).train()
    return np.diff(clock.times).tolist()


TRAINERS: dict[str, Callable[[Any], list[float]]] = {"lightning": run_lightning, "transformers": run_transformers}
