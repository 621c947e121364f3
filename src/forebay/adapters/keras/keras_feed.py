"""A feed that goes straight into Keras: `model.fit(feed, epochs=3, validation_data=other_feed)`, on any backend.

Keras takes a `DataAdapter` as it is. This one hands over the batches of an ordinary feed for the backend in use, and
answers for what Keras does not pass on to an adapter: class weights are served, what cannot be is refused.
"""

import functools
from collections.abc import Iterator
from typing import Any, Self

import keras

from forebay.adapters.keras.epochs import Batches, Epochs
from forebay.adapters.keras.fields import Arrange, ClassWeights, Fields, arranger
from forebay.adapters.keras.fit_arguments import refuse_ignored
from forebay.adapters.keras.internals import (
    DataAdapter,
    KerasCall,
    building_model,
    calling_epoch_iterator,
    running_call,
    set_num_batches,
    take_as_they_are,
)
from forebay.core import registry
from forebay.errors import FeedError, FrameworkError
from forebay.order.schedule import ENDLESS, Cursor
from forebay.pipeline.pipeline import Pipeline

__all__ = ["KerasFeed"]

_TARGETS = {"tensorflow": "tensorflow", "jax": "jax", "torch": "torch", "numpy": "numpy", "openvino": "numpy"}


class KerasFeed(DataAdapter):  # type: ignore[misc]  # Keras is untyped
    """Batches for `fit`, `evaluate` and `predict`.

        feed = fb.from_arrays((x, y)).shuffle(seed=0).batch(256).feed("keras")
        model.fit(feed, epochs=3)

    Each epoch of `fit` is the feed's next one; `evaluate` and `predict` take the next one too. A tuple pipeline gives
    `(x, y, sample_weight)` or the first of them. The fields of a dict are named: `x="image"`; a list of names gives
    the model a dict of inputs, a dict one under other names (`{"input": "field"}`), a tuple of names a tuple.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        device: str = "auto",
        resident: str = "auto",
        host_bytes: int | str = "256MiB",
        device_bytes: int | str | None = None,
        x: Fields = None,
        y: Fields = None,
        sample_weight: Fields = None,
    ) -> None:
        options = {"device": device, "resident": resident, "host_bytes": host_bytes, "device_bytes": device_bytes}
        self._pipeline = pipeline
        self._feed = registry.feed()(pipeline, to=_target(), **options)
        try:
            structure = self._feed.structure if self._foreseen else None
            self._arrange = arranger(structure, x=x, y=y, sample_weight=sample_weight)
        except BaseException:
            self._feed.close()
            raise
        self._epochs = Epochs(self._feed)
        self._error: Exception | None = None  # raised inside TensorFlow, to be raised again outside
        self._traced: dict[tuple[str, int], Any] = {}  # the iterators that TensorFlow's compiled loops know
        self._distributed = False  # tf.distribute fetches batches before the model takes them
        self._within_epoch = False
        self._building = False  # whether Keras takes a batch only to see its shape
        self._shortened = False  # whether Keras was told a number of batches for this epoch only

    # What a feed does

    def __iter__(self) -> Batches:
        return Batches(self._epochs, self._arrange)

    def __len__(self) -> int:
        return len(self._feed)

    def state_dict(self) -> dict[str, Any]:
        """Where the model stands: it counts the batches of finished steps, whatever Keras has fetched beyond them."""
        if self._distributed and self._within_epoch:
            raise FeedError(
                "under a tf.distribute strategy batches are fetched early, so what the model has seen is known only "
                "between epochs: call state_dict() in on_epoch_end() of a callback."
            )
        return self._epochs.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict()` was called: the next `fit` starts there.

        The end of an epoch is the beginning of the next: Keras cannot fit an epoch without a batch.
        """
        self._feed.load_state_dict(state)
        left = _batches_left(self._pipeline, state)
        if left == 0:
            self._feed.set_epoch(state["epoch"] + 1)
        self._epochs.move(left or None)

    def set_epoch(self, epoch: int) -> None:
        self._feed.set_epoch(epoch)
        self._epochs.move()

    def stats(self) -> Any:
        return self._feed.stats()

    def explain(self) -> str:
        explanation: str = self._feed.explain()
        return explanation

    def close(self) -> None:
        self._epochs.drop()
        self._feed.close()

    def __repr__(self) -> str:
        return f"KerasFeed({self._feed!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # What Keras asks an adapter

    @property
    def num_batches(self) -> int | None:
        batches: int | None = self._feed.batches
        return batches

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

    def get_jax_iterator(self) -> Batches:
        if self._on_device:
            take_as_they_are(calling_epoch_iterator("_get_iterator"))
        return self._batches(running_call(), may_run_ahead=True)

    def get_torch_dataloader(self) -> Batches:
        return self._batches(running_call())

    def get_numpy_iterator(self) -> Iterator[Any]:
        for batch in self._batches(running_call()):
            yield keras.tree.map_structure(keras.ops.convert_to_numpy, batch)

    def get_tf_dataset(self) -> Any:
        from forebay.adapters.keras import tensorflow as forms  # it imports TensorFlow, which only its backend needs

        call = running_call()
        arrange = self._arrange_for(call)
        make = functools.partial(Batches, self._epochs, arrange, call.owner if call else None)
        self._distributed = call is not None and forms.distributes(call.model)
        if call is None or (not self._distributed and self._eager(call.model)):
            return forms.EagerDataset(make)
        if not self._foreseen:
            raise FeedError(
                "under a tf.distribute strategy TensorFlow must know batches before it sees one, and what a map on the "
                "device returns is known only then: leave where='device' out."
            )
        rows = self._feed.batch_rows if self._feed.drops_remainder else None
        signature = self._arrange(self._feed.structure.unflatten(forms.specs_of(self._feed.specs, rows=rows)))
        if arrange is not self._arrange:
            signature = (*signature, forms.weights_spec(signature[1]))
        if self._distributed:
            return forms.generator_dataset(make, signature, self._fail, looks=lambda: self._building)
        role = call.role_of(self), len(signature)
        traced = self._traced.setdefault(role, forms.TracedBatches(signature, self._fail))
        return forms.TracedDataset(traced, make)

    def on_epoch_begin(self) -> None:
        """Keras is about to count an epoch's steps: tell it where a resumed epoch has fewer."""
        self._within_epoch, self._building = True, building_model()
        if self._epochs.next_left is not None:
            self._shortened = True
            set_num_batches(calling_epoch_iterator(), self._epochs.next_left)

    def on_epoch_end(self) -> None:
        """An epoch ended, or data ran out, or Keras starts over after a look at the first batch."""
        self._within_epoch = self._building = False
        error, self._error = self._error, None
        if error is not None:
            raise error
        starting_over = calling_epoch_iterator("reset")
        if starting_over is not None:
            self._epochs.hand_back(starting_over)
            return
        self._epochs.settle()
        if self._shortened:
            self._shortened = False
            set_num_batches(calling_epoch_iterator(), self.num_batches)

    @property
    def _foreseen(self) -> bool:
        """Whether it is known what batches are made of before one was taken: a map on the device tells by running."""
        return self._feed.plan.demand.given is not None

    def _eager(self, model: Any) -> bool:
        """Whether Keras is given tensors rather than a loop of its own: a loop would fetch them back to the host."""
        return model.steps_per_execution == 1 or self._on_device

    @property
    def _on_device(self) -> bool:
        return self._feed.plan.demand.device is not None

    def _batches(self, call: KerasCall | None, *, may_run_ahead: bool = False) -> Batches:
        owner = call.owner if call else None
        return Batches(self._epochs, self._arrange_for(call), owner, may_run_ahead=may_run_ahead)

    def _arrange_for(self, call: KerasCall | None) -> Arrange:
        """How batches are arranged for this call, after a look at what else it was given."""
        if call is None:
            return self._arrange
        refuse_ignored(call, self)
        weights = call.arguments.get("class_weight")
        if weights is None or call.role_of(self) != "fit":
            return self._arrange
        if self._foreseen:
            ClassWeights.check(self._arrange(self._feed.structure.unflatten(self._feed.specs)))
        arrange, weigh = self._arrange, ClassWeights(weights)
        return lambda batch: weigh(arrange(batch))

    def _fail(self, error: Exception) -> None:
        self._error = error


def _target() -> str:
    backend = keras.backend.backend()
    if backend not in _TARGETS:
        raise FrameworkError(
            f"Keras runs on {backend!r}, which Forebay cannot feed: set KERAS_BACKEND to one of {sorted(_TARGETS)}.",
            name=backend,
        )
    return _TARGETS[backend]


def _batches_left(pipeline: Pipeline, state: dict[str, Any]) -> int | None:
    """Batches that remain of the epoch in which a state stands; None where that is unknown."""
    if pipeline.schedule.batches is None:
        return None
    cursor = Cursor.from_state(state, pipeline.fingerprint)
    return sum(group.batches for group in pipeline.schedule.groups(cursor, ENDLESS))
