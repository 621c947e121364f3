"""Fits with a backup, which `backup_cases.py` and `killed_fit.py` share."""

import keras
import numpy as np
from tests.adapters.keras.conftest import BATCH, ROWS
from tests.adapters.keras.keras_models import RowsSeen

import forebay as fb

EPOCHS = 3
STEPS = -(-ROWS // BATCH)  # steps of an epoch


class InterruptedFitError(Exception):
    pass


class StopAtStep(keras.callbacks.Callback):
    """Calls a function after a number of steps, counted over all epochs of one `fit`."""

    def __init__(self, step, stop):
        super().__init__()
        self._step, self._stop, self._count = step, stop, 0

    def on_train_batch_end(self, batch, logs=None):
        self._count += 1
        if self._count == self._step:
            self._stop(self._count)


def interrupt(step):
    raise InterruptedFitError(step)


class RecordedLoss(RowsSeen):
    """A loss that also records its exact value for each batch."""

    def __init__(self):
        super().__init__()
        self.losses = []

    def __call__(self, y_true, y_pred, sample_weight=None):
        loss = super().__call__(y_true, y_pred, sample_weight)
        if len(self.losses) < len(self.batches):
            value = loss.detach() if hasattr(loss, "detach") else getattr(loss, "primal", loss)  # PyTorch, JAX
            self.losses.append(np.asarray(value).tobytes())
        return loss


def make_pipeline():
    x = np.random.default_rng(0).normal(size=(ROWS, 4)).astype("float32")
    return fb.from_arrays((x, np.arange(ROWS, dtype="float32")[:, None])).shuffle(seed=2)


def make_adam(loss="mse", **options):
    """Return a model whose optimizer has a state."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, activation="tanh"), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.01), loss, **options)
    return model


def fit_with_backup(folder, *, model=None, callbacks=(), pipeline=None, fit=None, **options):
    """Fit, from the backup in the folder if there is one.

    Return the model and its history.
    """
    model = model or make_adam(RecordedLoss(), run_eagerly=True)
    with (pipeline or make_pipeline().batch(BATCH)).feed("keras") as feed:
        backup = feed.backup_and_restore(folder, **options)
        arguments = {"epochs": EPOCHS, "verbose": 0} | (fit or {})
        return model, model.fit(feed, callbacks=[backup, *callbacks], **arguments).history
