"""States of feeds that need Keras or Ray, written and read in a separate process.

`python -m tests.compat.framework_states keras` prints states and the rows after them. With the name of a state file,
the command loads these states and prints the rows that it receives. This file uses only the public interface of
Forebay.
"""

import importlib
import json
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from tests.compat.pipelines import ROWS, batches_of, rest_and_next

import forebay as fb

__all__ = ["MODES"]

States = dict[str, dict[str, Any]]
EPOCH, STEP = 1, 2  # the first state of a fit is taken after three batches of the second epoch


def keras_states() -> States:
    """Return states that a callback takes inside `fit`, on the backend of KERAS_BACKEND.

    Keras on JAX prefetches a batch.
    """
    import keras

    taken: dict[str, Any] = {}

    class Keep(keras.callbacks.Callback):
        epoch = 0

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.epoch = epoch

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if self.epoch == EPOCH and batch in (STEP, len(feed) - 1):
                taken["mid_epoch" if batch == STEP else "last_batch_received"] = feed.state_dict()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if epoch == EPOCH:
                taken["end_of_epoch"] = feed.state_dict()

    with _keras_pipeline().feed("keras") as feed:
        _model().fit(feed, epochs=EPOCH + 1, callbacks=[Keep()], verbose=0)
    return {name: {"state": state} for name, state in taken.items()}


def keras_rows(states: States) -> States:
    received = {}
    for name, kept in states.items():
        with _keras_pipeline().feed("keras") as feed:
            feed.load_state_dict(kept["state"])
            received[name] = rest_and_next(feed, feed, None)
            feed.load_state_dict(kept["state"])
            received[name]["steps"] = len(_steps_of_fit(feed))
    return received


def _steps_of_fit(feed: Any) -> list[int]:
    """Run one epoch of `fit`; return the numbers of its batches."""
    import keras

    steps: list[int] = []
    count = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: steps.append(batch))
    _model().fit(feed, epochs=1, callbacks=[count], verbose=0)
    return steps


def _keras_pipeline() -> fb.Pipeline:
    rows = np.arange(ROWS, dtype="f4")
    return fb.from_arrays((np.stack([rows, -rows], axis=1), rows / 2)).shuffle(seed=3).batch(4)


def _model() -> Any:
    import keras

    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    model.compile(optimizer=keras.optimizers.SGD(1e-4), loss="mse")
    return model


def ray_states() -> States:
    with _ray_pipeline().feed("numpy") as feed:
        received = list(islice(iter(feed), 3))
        assert len(received) == 3
        return {"dataset_mid_epoch": {"state": feed.state_dict()}}


def ray_rows(states: States) -> States:
    received = {}
    for name, kept in states.items():
        with _ray_pipeline().feed("numpy") as feed:
            feed.load_state_dict(kept["state"])
            received[name] = {"rest": batches_of(feed), "next": batches_of(feed)}
    return received


def _ray_pipeline() -> fb.Pipeline:
    ray = importlib.import_module("ray")
    if not ray.is_initialized():
        ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    dataset = importlib.import_module("ray.data").range(ROWS, override_num_blocks=3)
    return importlib.import_module("forebay.adapters.ray").from_dataset(dataset).batch(4)


Mode = tuple[Callable[[], States], Callable[[States], States]]
MODES: dict[str, Mode] = {"keras": (keras_states, keras_rows), "ray": (ray_states, ray_rows)}


def main(name: str, *files: str) -> None:
    write, read = MODES[name]
    states = json.loads(Path(files[0]).read_text()) if files else write()
    rows = read(states)
    sys.stdout.write("\n" + json.dumps(rows if files else {case: states[case] | rows[case] for case in states}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
