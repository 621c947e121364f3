"""Measure how much a feed slows the steps of a trainer on a GPU.

    python benchmarks/trainer_overhead.py [--trainer lightning --trainer transformers] [--rounds 5] [--steps 200]

The baseline is the same trainer with a loader that repeats one batch on the GPU. It loads nothing. Both alternate.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import torch

import forebay as fb

BATCH, SHAPE = 256, (3, 64, 64)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainer", action="append", choices=tuple(TRAINERS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=200)
    work = parser.parse_args()
    rows = BATCH * work.steps
    generator = np.random.default_rng(0)
    data = {"x": generator.random((rows, *SHAPE), dtype=np.float32), "labels": generator.integers(0, 10, rows)}
    for name in work.trainer or TRAINERS:
        streamed, resident = (
            fb.from_arrays(data).shuffle(seed=0).batch(BATCH).feed("loader", device="cuda", resident=resident)
            for resident in ("never", "auto")
        )
        loaders = {"one batch": RepeatedBatch(work.steps), "forebay streamed": streamed, "forebay": resident}
        seconds = measure(TRAINERS[name], loaders, work.rounds)
        alone = statistics.median(seconds["one batch"])
        for label, values in seconds.items():
            ratios = [value / base for value, base in zip(values, seconds["one batch"], strict=True)]
            spread = (max(values) - min(values)) / 2 / statistics.median(values)
            print(
                f"{name:13} {label:17} {statistics.median(values) * 1e3:.3f} ms per step +- {spread:.0%}, "
                f"{statistics.median(ratios):.3f} x of one batch ({alone * 1e3:.3f} ms)",
                flush=True,
            )


def measure(run: Callable[[Any], list[float]], loaders: dict[str, Any], rounds: int) -> dict[str, list[float]]:
    """Return the median seconds per step of each loader in each round, after one round of warm-up."""
    seconds: dict[str, list[float]] = {name: [] for name in loaders}
    for number in range(rounds + 1):
        for name, loader in loaders.items():
            steps = run(loader)
            if number:
                seconds[name].append(statistics.mean(steps[len(steps) // 4 :]))
    return seconds


class RepeatedBatch(torch.utils.data.DataLoader[Any]):
    """A loader that repeats one batch on the GPU."""

    def __init__(self, steps: int) -> None:
        super().__init__(list(range(steps)), batch_size=1)
        self._batch = {
            "x": torch.rand((BATCH, *SHAPE), device="cuda"),
            "labels": torch.randint(0, 10, (BATCH,), device="cuda"),
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
            torch.cuda.synchronize()
            self.times.append(time.perf_counter())

    clock = Clock()
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    lightning.Trainer(max_epochs=1, accelerator="gpu", devices=1, callbacks=[clock], **quiet).fit(Model(), loader)
    return np.diff(clock.times).tolist()


def run_transformers(loader: Any) -> list[float]:
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class FeedTrainer(Trainer):
        def get_train_dataloader(self) -> Any:
            return self.train_dataset

    class Clock(TrainerCallback):
        def __init__(self) -> None:
            self.times: list[float] = []

        def on_step_end(self, *_: Any, **__: Any) -> None:
            torch.cuda.synchronize()
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
        FeedTrainer(Net(), arguments, train_dataset=loader, callbacks=[clock]).train()
    return np.diff(clock.times).tolist()


TRAINERS: dict[str, Callable[[Any], list[float]]] = {"lightning": run_lightning, "transformers": run_transformers}

if __name__ == "__main__":
    main()
