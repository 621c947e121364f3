"""A callback that backs up a `fit` together with the position of its feed.

Keras's `BackupAndRestore` writes the weights, and then the epoch. A process may be killed between any two writes. So
this callback writes the feed's state before the weights, and keeps the states of the last three backups. The weights
file contains the step counters of the optimizer. After Keras has loaded the weights, these counters tell which state
belongs to the weights.
"""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import keras

from forebay.adapters.keras.internals import running_call
from forebay.errors import FrameworkError, PipelineError, StateError

__all__ = ["FeedBackup", "ResumableFeed"]

_STATES_FILE = "feed_states.json"
# The newest backup, whose weights may be missing; the one before it; and one for the second file that Keras keeps with
# `double_checkpoint`.
_KEPT_BACKUPS = 3


class ResumableFeed(Protocol):
    """The methods of a Keras feed that the callback calls."""

    @property
    def num_batches(self) -> int | None: ...

    def state_dict(self) -> dict[str, Any]: ...

    def batches_left(self, state: dict[str, Any]) -> int | None: ...

    def resume(self, state: dict[str, Any], *, finished_steps: int) -> bool: ...


@dataclass(frozen=True, slots=True)
class _Backup:
    step_counters: list[float]  # scalar variables of the optimizer; they identify the weights
    epoch: int  # epoch of `fit` in which training continues
    finished_steps: int  # finished steps of this epoch
    feed_state: dict[str, Any]


class FeedBackup(keras.callbacks.BackupAndRestore):  # type: ignore[misc]  # Keras is untyped
    """`keras.callbacks.BackupAndRestore`, which also backs up and restores the position of a feed."""

    def __init__(self, feed: ResumableFeed, backup_dir: str | os.PathLike[str], **options: Any) -> None:
        """Accept the options of `keras.callbacks.BackupAndRestore`."""
        folder = os.fspath(backup_dir)
        if "://" in folder:
            raise PipelineError(f"backup_dir={folder!r} is not a local folder. Choose a folder on a mounted disk.")
        super().__init__(folder, **options)
        if not hasattr(self, "_save_model") or not hasattr(self, "_weights_path"):
            raise FrameworkError(
                f"BackupAndRestore of Keras {keras.__version__} lacks methods that Forebay needs. Save "
                "feed.state_dict() in a callback of your own.",
                name="keras",
            )
        self._feed = feed
        self._states_path = Path(folder) / _STATES_FILE
        self._fit_epoch, self._finished_steps = 0, 0  # the current epoch of `fit`, and its finished steps
        self._steps_before_resume = 0  # steps of the resumed epoch that an earlier `fit` has finished

    def on_train_begin(self, logs: Any = None) -> None:
        """Restore weights, epoch and position of the feed, if there is a backup."""
        self._refuse_another_feed()
        if getattr(self.model, "optimizer", None) is None:
            raise PipelineError(
                "the model has no optimizer, but the optimizer's step counter tells which state of the feed belongs to "
                "the weights. Compile the model with an optimizer, or save feed.state_dict() in a callback of your own."
            )
        self._steps_before_resume = 0
        super().on_train_begin(logs)
        if not Path(self._weights_path).exists():
            return
        backup = self._find_backup()
        try:
            is_inside_epoch = self._feed.resume(backup.feed_state, finished_steps=backup.finished_steps)
        except StateError as error:
            raise StateError(
                f"the feed cannot resume from the folder {self.backup_dir}: {error} "
                f"Or delete {self.backup_dir} to train from the beginning."
            ) from error
        self._steps_before_resume = backup.finished_steps if is_inside_epoch else 0
        # Replace the epoch that Keras has restored. Keras writes the epoch after the weights, so it may be older.
        self.model._initial_epoch = backup.epoch if is_inside_epoch else backup.epoch + 1

    def _refuse_another_feed(self) -> None:
        """Raise an error if `fit` trains on other data than this feed.

        The backup would have the position of a feed that `fit` does not use.
        """
        call = running_call()
        if call is not None and call.method == "fit" and call.arguments.get("x") is not self._feed:
            raise PipelineError(
                "backup_and_restore() belongs to another feed than the one that fit() trains on. "
                "Call backup_and_restore() of the feed that is the first argument of fit()."
            )

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._fit_epoch = epoch
        self._current_epoch = epoch  # for Keras, which would save epoch 0 until the first epoch of a resumed `fit` ends
        self._finished_steps = self._steps_before_resume

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._finished_steps = self._steps_before_resume + batch + 1
        super().on_train_batch_end(batch, logs)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._fit_epoch, self._finished_steps, self._steps_before_resume = epoch + 1, 0, 0
        super().on_epoch_end(epoch, logs)

    def _save_model(self, *arguments: Any, **options: Any) -> None:
        """Write the state of the feed, and then the weights."""
        state = self._feed.state_dict()
        epoch, finished_steps = self._fit_epoch, self._finished_steps
        if self._ends_epoch(state):
            epoch, finished_steps = epoch + 1, 0
        backup = _Backup(_step_counters(self.model.optimizer), epoch, finished_steps, state)
        others = [kept for kept in self._read_backups() if kept.step_counters != backup.step_counters]
        self._write_backups([*others, backup][-_KEPT_BACKUPS:])
        super()._save_model(*arguments, **options)

    def _ends_epoch(self, state: dict[str, Any]) -> bool:
        """Return whether the step that `fit` finished last is the last step of its epoch."""
        if self._finished_steps == 0:
            return False
        steps = self.params.get("steps")
        batches_left = self._feed.batches_left(state) if steps == self._feed.num_batches else None
        if batches_left is not None:  # `steps` would be wrong for a resumed feed with another batch size
            return batches_left == 0
        return steps is not None and self._finished_steps >= steps

    def _find_backup(self) -> _Backup:
        """Return the backup of the weights that Keras has loaded."""
        counters = _step_counters(self.model.optimizer)
        backups = self._read_backups()
        for backup in reversed(backups):
            if backup.step_counters == counters:
                return backup
        raise StateError(
            f"{self.backup_dir} has weights, but no state of the feed for them "
            f"({len(backups)} states of other steps). Keras may have skipped the optimizer, because the model was "
            "not built before fit: build it, for example by a call with one batch. Or another callback has written the "
            "weights: then delete the folder to train from the beginning, or choose another folder."
        )

    def _read_backups(self) -> list[_Backup]:
        if not self._states_path.exists():
            return []
        try:
            return [_Backup(**fields) for fields in json.loads(self._states_path.read_text())["backups"]]
        except (ValueError, TypeError, KeyError) as error:
            raise StateError(
                f"{self._states_path} is damaged: {error}. Delete the folder to train from the beginning."
            ) from error

    def _write_backups(self, backups: list[_Backup]) -> None:
        """Replace the file of states in one step. A killed process leaves no incomplete file."""
        self._states_path.parent.mkdir(parents=True, exist_ok=True)
        new_path = self._states_path.with_suffix(".new")
        with new_path.open("w") as file:
            json.dump({"version": 1, "backups": [asdict(backup) for backup in backups]}, file)
            file.flush()
            os.fsync(file.fileno())
        new_path.replace(self._states_path)


def _step_counters(optimizer: Any) -> list[float]:
    """Return the scalar variables of an optimizer.

    At least one of them changes with every step.
    """
    scalars = [variable for variable in optimizer.variables if len(variable.shape) == 0]
    return [float(keras.ops.convert_to_numpy(variable)) for variable in scalars]
