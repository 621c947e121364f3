"""A feed for Keras on any backend: `model.fit(feed, epochs=3, validation_data=other_feed)`.

Keras accepts a `DataAdapter` as data. The adapter of this module returns the batches of an ordinary feed for the
framework on which Keras runs. Keras does not pass the arguments of `fit` to an adapter, so the adapter reads them from
the stack. It applies `class_weight`, and raises an error for arguments that Keras would ignore.
"""

import functools
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Self

import keras

from forebay.adapters.keras.backup import FeedBackup
from forebay.adapters.keras.epochs import EpochBatches, FeedEpochs
from forebay.adapters.keras.fields import Arranger, ClassWeights, Fields, make_arranger
from forebay.adapters.keras.fit_arguments import check_call, first_epoch, warn_of_plain_backup
from forebay.adapters.keras.internals import (
    DataAdapter,
    KerasCall,
    backend_target,
    calling_epoch_iterator,
    is_building_model,
    limit_prefetch,
    running_call,
    set_num_batches,
    set_steps_per_epoch,
)
from forebay.core.engine import Engine
from forebay.core.recorder import Received
from forebay.errors import FeedError, PipelineError
from forebay.feed.feed import Feed
from forebay.feed.reports import StatsCallback
from forebay.order.schedule import ENDLESS, Cursor
from forebay.pipeline.familiar_words import reject_attribute
from forebay.pipeline.options import FeedOptions
from forebay.pipeline.pipeline import Pipeline

__all__ = ["KerasFeed"]


class KerasFeed(DataAdapter):  # type: ignore[misc]  # Keras is untyped
    """Batches for `fit`, `evaluate` and `predict`.

        feed = fb.from_arrays((x, y)).shuffle(seed=0).batch(256).feed("keras")
        model.fit(feed, epochs=3)

    Each epoch of `fit` and each call of `evaluate` or `predict` uses the next epoch of the feed. A feed that was not
    used before begins at `initial_epoch` of `fit`.

    If rows are tuples, batches are `(x,)`, `(x, y)` or `(x, y, sample_weight)`. If rows are dicts, name the fields:
    `x="image"`. With a list of names, the model gets a dict of inputs; with a tuple of names, a tuple. With a dict
    `{"input": "field"}`, the model gets a dict with the names of its inputs as keys.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        device: str | Engine = FeedOptions.device,
        resident: str = FeedOptions.resident,
        host_bytes: int | str = FeedOptions.host_bytes,
        device_bytes: int | str | None = FeedOptions.device_bytes,
        x: Fields = None,
        y: Fields = None,
        sample_weight: Fields = None,
    ) -> None:
        if pipeline.batching is not None and pipeline.batching.ragged is not None:
            raise PipelineError("Keras layers take no ragged rows. Pad them: batch(..., pad=0).")
        self._pipeline = pipeline
        self._feed = Feed(pipeline, FeedOptions(backend_target(), device, resident, host_bytes, device_bytes))
        try:
            if self._feed.plan.input.split is not None:
                raise PipelineError("feed('keras') gets its devices from the strategy of the model. Leave out device=.")
            structure = self._feed.structure if self._has_known_output else None
            self._arrange = make_arranger(structure, x=x, y=y, sample_weight=sample_weight)
        except BaseException:
            self._feed.close()
            raise
        self._epochs = FeedEpochs(self._feed)
        self._error: Exception | None = None  # error in a call from TensorFlow; `on_epoch_end` raises it
        self._traced: dict[
            tuple[str, int], Any
        ] = {}  # iterators of compiled loops, by role of the feed and length of the signature
        self._has_warned_of_backup = False  # whether it warned of Keras's `BackupAndRestore`
        self._is_distributed = False  # whether tf.distribute fetches batches before the model takes them
        self._is_in_epoch = False
        self._is_building = False  # whether Keras takes a batch only to read its shapes
        self._has_short_epoch = False  # whether the current or the next epoch of `fit` is a resumed, shorter epoch
        self._finished_steps = 0  # steps of the next epoch of `fit` that an earlier `fit` has finished
        self._steps_per_epoch: int | None = None  # the argument of `fit`, to restore it after a resumed epoch

    # Methods of a feed

    def __iter__(self) -> EpochBatches:
        return EpochBatches(self._epochs, self._arrange)

    def __len__(self) -> int:
        return len(self._feed)

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the last batch that the model has seen."""
        if self._is_distributed and self._is_in_epoch:
            raise FeedError(
                "a tf.distribute strategy fetches batches early, so Forebay knows only between epochs how many batches "
                "the model has seen. Call state_dict() in on_epoch_end() of a callback."
            )
        return self._epochs.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Make the next `fit` start at the position of a state from `state_dict`.

        If the state is at the end of an epoch, `fit` starts the next epoch, because Keras cannot fit an empty epoch.
        """
        self._feed.load_state_dict(state)
        batches_left = self.batches_left(state)
        if batches_left == 0:
            self._feed.set_epoch(state["epoch"] + 1)
        self._epochs.invalidate(batches_left or None)
        self._has_short_epoch, self._finished_steps = True, 0

    def backup_and_restore(
        self,
        backup_dir: str | os.PathLike[str],
        *,
        save_freq: str | int = "epoch",
        double_checkpoint: bool = False,
        delete_checkpoint: bool = True,
    ) -> FeedBackup:
        """Return a `BackupAndRestore` callback that also restores the position of this feed.

        After an interruption, run the same script again: training continues with the next row.

        Args:
            backup_dir: The folder of the backup, on a local disk.
            save_freq: When to save: `"epoch"`, or a number of batches.
            double_checkpoint: Whether to keep two backups, so that the process may be killed while it writes weights.
            delete_checkpoint: Whether to delete the folder after the last epoch.

        Examples:
            >>> import numpy as np, keras, forebay as fb
            >>> feed = fb.from_arrays((np.ones((8, 2)), np.ones(8))).batch(4).feed("keras")
            >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
            >>> model.compile("sgd", "mse")
            >>> backup = feed.backup_and_restore("backup", save_freq=1)
            >>> history = model.fit(feed, epochs=2, callbacks=[backup], verbose=0)
            >>> len(history.history["loss"])
            2
        """
        options = {"double_checkpoint": double_checkpoint, "delete_checkpoint": delete_checkpoint}
        return FeedBackup(self, backup_dir, save_freq=save_freq, **options)

    def resume(self, state: dict[str, Any], *, finished_steps: int) -> bool:
        """Load a state of an epoch of `fit` that has `finished_steps` finished steps.

        `fit(steps_per_epoch=)` then takes only the remaining steps in its first epoch. Return whether `fit` continues
        inside of this epoch. Return False if no batch of the epoch remains; then the feed begins the next epoch.
        """
        self.load_state_dict(state)
        if finished_steps and self.batches_left(state) is None:  # only the next batch tells whether the epoch is over
            if next(iter(self._feed), None) is None:
                self.load_state_dict(self._feed.state_dict())
                return False
            self.load_state_dict(state)
        self._finished_steps = finished_steps
        return True

    def batches_left(self, state: dict[str, Any]) -> int | None:
        """Return the number of batches after this state in its epoch; None if unknown."""
        if self._pipeline.schedule.batches is None:
            return None
        cursor = Cursor.from_state(state, self._pipeline.fingerprint)
        return sum(group.batches for group in self._pipeline.schedule.groups(cursor, ENDLESS))

    def set_epoch(self, epoch: int) -> None:
        """Make the next `fit` start this epoch of the feed."""
        self._feed.set_epoch(epoch)
        self._epochs.invalidate()

    def stats(self) -> Any:
        return self._feed.stats()

    @property
    def received(self) -> Received:
        """What the consumer received so far, with a histogram of its waits."""
        return self._feed.received

    def on_stats(self, callback: StatsCallback, *, every: int | str = "10s") -> Callable[[], None]:
        """Call `callback(stats)` regularly, and return a function that ends the calls, as `Feed.on_stats` does."""
        return self._feed.on_stats(callback, every=every)

    def explain(self) -> str:
        return self._feed.explain()

    def close(self) -> None:
        self._epochs.release_batches()
        self._feed.close()

    def __repr__(self) -> str:
        return f"KerasFeed({self._feed!r})"

    def _repr_html_(self) -> str:
        return self._feed._repr_html_()

    if not TYPE_CHECKING:  # type checkers report missing attributes themselves

        def __getattr__(self, name: str) -> Any:
            return reject_attribute(self, name, "a feed")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Methods of a Keras DataAdapter

    @property
    def num_batches(self) -> int | None:
        return self._feed.batches

    @property
    def batch_size(self) -> int | None:
        rows: int | None = self._feed.batch_rows
        return rows

    @property
    def has_partial_batch(self) -> bool | None:
        return False if self._feed.drops_remainder else None

    @property
    def partial_batch_size(self) -> int | None:
        return None

    def get_jax_iterator(self) -> EpochBatches:
        return self._batches(running_call(), may_run_ahead=True)

    def get_torch_dataloader(self) -> EpochBatches:
        return self._batches(running_call())

    def get_numpy_iterator(self) -> Iterator[Any]:
        for batch in self._batches(running_call()):
            yield keras.tree.map_structure(keras.ops.convert_to_numpy, batch)

    def get_tf_dataset(self) -> Any:
        from forebay.adapters.keras import tensorflow as tf_batches  # imports TensorFlow, which only this backend needs

        call = running_call()
        arrange = self._arranger_for(call)
        make_batches = functools.partial(EpochBatches, self._epochs, arrange, call.owner if call else None)
        self._is_distributed = call is not None and tf_batches.is_distributed(call.model)
        if call is None or (not self._is_distributed and self._uses_eager_tensors(call.model)):
            return tf_batches.EagerDataset(make_batches)
        if not self._has_known_output:
            raise FeedError(
                "under a tf.distribute strategy, TensorFlow needs the shapes of batches in advance. The shapes after a "
                "map on the device are known only when the map has run. Leave where='device' out."
            )
        rows = self._feed.batch_rows if self._feed.drops_remainder else None
        leaf_signatures = tf_batches.batch_signature(self._feed.specs, rows=rows)
        signature = self._arrange(self._feed.structure.unflatten(leaf_signatures))
        if arrange is not self._arrange:
            signature = (*signature, tf_batches.weights_signature(signature[1]))
        if self._is_distributed:
            return tf_batches.generator_dataset(
                make_batches, signature, self._store_error, is_building=lambda: self._is_building
            )
        key = call.role_of(self), len(signature)
        if key not in self._traced:
            self._traced[key] = tf_batches.TracedBatches(signature, self._store_error)
        return tf_batches.TracedDataset(self._traced[key], make_batches)

    def on_epoch_begin(self) -> None:
        """Limit the prefetch of Keras, and tell Keras the length of a resumed epoch."""
        limit_prefetch(calling_epoch_iterator(), is_on_device=self._on_device)
        self._is_in_epoch, self._is_building = True, is_building_model()
        if self._epochs.next_epoch_batches is not None:
            set_num_batches(calling_epoch_iterator(), self._epochs.next_epoch_batches)
        finished_steps, self._finished_steps = self._finished_steps, 0
        if finished_steps:
            self._steps_per_epoch = set_steps_per_epoch(calling_epoch_iterator(), lambda steps: steps - finished_steps)

    def on_epoch_end(self) -> None:
        """End an epoch, or replay its first batches if Keras only read their shapes.

        If a call from TensorFlow has stored an error, raise the error.
        """
        self._is_in_epoch = self._is_building = False
        error, self._error = self._error, None
        if error is not None:
            raise error
        restarting_iterator = calling_epoch_iterator("reset")
        if restarting_iterator is not None:
            self._epochs.replay(restarting_iterator)
            return
        self._epochs.finish_epoch()
        if self._has_short_epoch:
            self._has_short_epoch = False
            set_num_batches(calling_epoch_iterator(), self.num_batches)
        steps, self._steps_per_epoch = self._steps_per_epoch, None
        if steps is not None:
            set_steps_per_epoch(calling_epoch_iterator(), lambda _: steps)

    @property
    def _has_known_output(self) -> bool:
        """Whether batches have known specs in advance; False if a map runs on the device."""
        return self._feed.plan.input.output is not None

    def _uses_eager_tensors(self, model: Any) -> bool:
        """Return whether Keras gets eager tensors.

        Otherwise, Keras's compiled loop over several steps takes the batches. This loop would copy GPU tensors back to
        the host, and needs the specs of batches in advance.
        """
        return model.steps_per_execution == 1 or self._on_device or not self._has_known_output

    @property
    def _on_device(self) -> bool:
        return self._feed.plan.input.device is not None

    def _batches(self, call: KerasCall | None, *, may_run_ahead: bool = False) -> EpochBatches:
        owner = call.owner if call else None
        return EpochBatches(self._epochs, self._arranger_for(call), owner, may_run_ahead=may_run_ahead)

    def _arranger_for(self, call: KerasCall | None) -> Arranger:
        """Return the arranger for a call of `fit`, `evaluate` or `predict`.

        Raise an error for a call that cannot work as intended. Without a call, return the plain arranger.
        """
        if call is None:
            return self._arrange
        structure = self._feed.structure if self._has_known_output else None
        parts = None if structure is None else self._arrange(structure.unflatten(self._feed.specs))
        check_call(call, self, structure, parts, is_endless=self._pipeline.is_endless)
        if call.role_of(self) == "fit":
            self._has_warned_of_backup = self._has_warned_of_backup or warn_of_plain_backup(call)
            epoch = first_epoch(call) if self._epochs.is_unused else 0
            if epoch:
                self.set_epoch(epoch)
        weights = call.arguments.get("class_weight")
        if weights is None or call.role_of(self) != "fit":
            return self._arrange
        if parts is not None:
            ClassWeights.check(parts)
        arrange, add_weights = self._arrange, ClassWeights(weights)
        return lambda batch: add_weights(arrange(batch))

    def _store_error(self, error: Exception) -> None:
        self._error = error
