"""The parts of `forebay demo` that need a framework.

`feed_framework` feeds the framework. `run_doctor` runs the doctor on a script with a fault.
"""

import os
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import forebay as fb
from forebay.cli.console import report_progress

__all__ = ["FRAMEWORK_BATCH", "SCRIPTS", "feed_framework", "find_framework", "run_doctor"]

FRAMEWORK_ROWS, WIDTH, FRAMEWORK_BATCH = 100_000, 100, 256  # rows of the data, numbers per row, rows per batch
FEED_SECONDS = 0.5  # how long the feed is measured
DOCTOR_SECONDS = 120.0  # time limit of the doctor; after it, the demo shows no report

_TORCH = '''"""Trains on rows that a Python function prepares one by one, in the process that also trains."""

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    images = np.random.randint(0, 256, (512, 32, 32, 3), dtype="uint8")

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = self.images[index].astype("float32") / 255
        for axis in (0, 1):
            image = (np.roll(image, 1, axis) + image + np.roll(image, -1, axis)) / 3
        return torch.from_numpy(image.transpose(2, 0, 1)), index % 10


torch.set_num_threads(1)
loader = DataLoader(Images(), batch_size=16, shuffle=True)
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(32 * 32 * 3, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(10):
    for images, labels in loader:
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
'''
_JAX = '''"""Trains on rows that Python code prepares one by one before each step."""

import jax
import jax.numpy as jnp
import numpy as np

images = np.random.randint(0, 256, (512, 48, 48, 3), dtype="uint8")


def make_batch(start):
    rows = [images[row % len(images)].astype("float32") / 255 for row in range(start, start + 64)]
    return np.stack([(row - row.mean()) / row.std() for row in rows]).reshape(64, -1)


@jax.jit
def step(weights, batch):
    return weights - 0.01 * jax.grad(lambda w: jnp.mean((batch @ w) ** 2))(weights)


weights = jnp.zeros((48 * 48 * 3, 10))
for number in range(200):
    weights = step(weights, make_batch(number * 64))
'''
_TENSORFLOW = '''"""Trains on rows that a Python generator prepares one by one."""

import keras
import numpy as np

images = np.random.randint(0, 256, (512, 48, 48, 3), dtype="uint8")


def batches():
    while True:
        rows = [images[row].astype("float32") / 255 for row in np.random.randint(0, len(images), 64)]
        yield np.stack([(row - row.mean()) / row.std() for row in rows]).reshape(64, -1), np.zeros(64)


model = keras.Sequential([keras.layers.Dense(10)])
model.compile(loss="sparse_categorical_crossentropy")
model.fit(batches(), steps_per_epoch=100, epochs=2, verbose=0)
'''
SCRIPTS = {"torch": _TORCH, "jax": _JAX, "tensorflow": _TENSORFLOW}  # the framework that imports fastest comes first


def find_framework() -> str | None:
    """Return the first framework that is installed, without importing it."""
    return next((name for name in SCRIPTS if find_spec(name) is not None), None)


def feed_framework(name: str) -> dict[str, Any]:
    """Feed a framework for `FEED_SECONDS`.

    Return a dict for JSON with the framework, the device, the type of a batch and the rows per second.
    """
    rng = np.random.default_rng(0)
    data = {
        "x": rng.random((FRAMEWORK_ROWS, WIDTH), dtype=np.float32),
        "y": np.arange(FRAMEWORK_ROWS, dtype=np.int32) % 10,
    }
    pipeline = fb.from_arrays(data).shuffle(seed=0).batch(FRAMEWORK_BATCH, drop_remainder=True).shard(0, 1)
    with report_progress(f"importing {name}"), pipeline.repeat().feed(name) as feed:
        batch, batches, start = next(feed), 0, time.perf_counter()
        while time.perf_counter() - start < FEED_SECONDS:
            batch, batches = next(feed), batches + 1
        speed = batches * FRAMEWORK_BATCH / (time.perf_counter() - start)
        kind = f"{type(batch['x']).__module__.partition('.')[0]} {type(batch['x']).__name__}"
        return {"framework": name, "device": feed.plan.input.engine, "batch_type": kind, "rows_per_second": speed}


def run_doctor(name: str) -> str:
    """Run the doctor on a script with a fault, and return its report.

    Return an empty text if the doctor fails or needs more than `DOCTOR_SECONDS`.
    """
    with tempfile.TemporaryDirectory() as folder, report_progress("profiling a script of the demo"):
        script = Path(folder) / "train.py"
        script.write_text(SCRIPTS[name])
        command = [sys.executable, "-m", "forebay", "doctor", "--stop", script.name]
        environment = {**os.environ, "COLUMNS": "80", "TF_CPP_MIN_LOG_LEVEL": "3"}
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=DOCTOR_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return ""
        return done.stdout if done.returncode == 0 else ""
