"""Batches in the three forms that Keras's TensorFlow trainer can iterate.

Keras runs `steps_per_execution` steps per execution.

- Eager tensors, if an execution has one step or batches are on a GPU: Keras calls its compiled step for each batch.
  There is no copy, and errors keep their type.
- A traced iterator, if an execution has several steps and batches are on the host: Keras's loop runs inside
  TensorFlow and calls Python for each batch. The iterator must be the same object in every epoch, else TensorFlow
  traces the loop again.
- A `tf.data.Dataset`, under a `tf.distribute` strategy, which accepts nothing else.

In the last two forms, Python runs inside TensorFlow, where an exception loses its type. So the iterator stores the
error and stops, and the feed raises the error when Keras reports the end of the epoch.
"""

import itertools
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from forebay.adapters.keras.epochs import EpochBatches
from forebay.core.spec import ArraySpec
from forebay.errors import FeedError

__all__ = [
    "EagerDataset",
    "TracedBatches",
    "TracedDataset",
    "distributes",
    "generator_dataset",
    "specs_of",
    "weights_spec",
]

MakeBatches = Callable[[], EpochBatches]
Fail = Callable[[Exception], None]


def distributes(model: Any) -> bool:
    """Whether the model trains under a strategy of the user. The default strategy does not distribute data."""
    with model.distribute_strategy.scope():
        return bool(tf.distribute.has_strategy())


def specs_of(specs: Sequence[ArraySpec], *, rows: int | None) -> list[Any]:
    """Return the signature of a batch. `rows` is None if the last batch may be shorter."""
    return [tf.TensorSpec((rows, *spec.shape), spec.dtype) for spec in specs]


def weights_spec(labels: Any) -> Any:
    """Return the signature of class weights: one weight for each label. Labels are numbers or one-hot rows."""
    return tf.TensorSpec(labels.shape[:-1] if labels.shape.rank > 1 else labels.shape, keras.config.floatx())


class EagerDataset:
    """Makes a new iterator of eager tensors for each epoch."""

    def __init__(self, make: MakeBatches) -> None:
        self._make = make

    def __iter__(self) -> "EagerBatches":
        return EagerBatches(self._make())


class EagerBatches:
    """Batches of eager tensors. Keras calls `iter()` for each execution, and `next()` for each step in it."""

    def __init__(self, batches: EpochBatches) -> None:
        self._batches = batches
        self._steps = 0  # steps of this execution so far

    def __iter__(self) -> "EagerBatches":
        self._steps = 0
        return self

    def __next__(self) -> Any:
        if tf.inside_function():
            # The tensors would become constants of the graph, so that every step would train on this one batch.
            raise FeedError(
                "a feed was iterated inside a tf.function, which would reuse its first batch forever. An older Keras "
                "or your make_train_function() does that. Upgrade Keras, or take batches outside the function."
            )
        try:
            batch = next(self._batches)
        except StopIteration:
            if self._steps:
                raise
            # Keras fails on StopIteration in an execution without a step, because it has no outputs to return.
            raise tf.errors.OutOfRangeError(None, None, "the epoch is over") from None
        self._steps += 1
        return batch


class TracedDataset:
    """Returns the same traced iterator for each epoch, at the start of that epoch."""

    def __init__(self, traced: "TracedBatches", make: MakeBatches) -> None:
        self._traced = traced
        self._make = make

    def __iter__(self) -> "TracedBatches":
        return self._traced.begin(self._make())


class TracedBatches(tf.distribute.DistributedIterator):  # type: ignore[misc]  # Keras traces this type, and TensorFlow is untyped
    """The iterator inside Keras's compiled loop. It returns the next batch or an empty optional."""

    def __init__(self, signature: Any, fail: Fail) -> None:
        self._signature = signature
        self._fail = fail
        self._batches: Iterator[Any] = iter(())
        specs = tf.nest.flatten(signature)
        self._padding = [tf.zeros([length or 1 for length in spec.shape], spec.dtype) for spec in specs]

    def begin(self, batches: EpochBatches) -> "TracedBatches":
        self._batches = batches
        return self

    @property
    def element_spec(self) -> Any:
        return self._signature

    def __iter__(self) -> "TracedBatches":
        return self

    def __next__(self) -> Any:
        return next(self._batches)

    def get_next(self) -> Any:
        return self.get_next_as_optional().get_value()

    def get_next_as_optional(self) -> Any:
        """Return an optional with the next batch, or an empty one after the last batch."""
        specs = tf.nest.flatten(self._signature)
        with tf.device("CPU:0"):
            more, *leaves = tf.py_function(_weak_pull(self), [], [tf.bool, *(spec.dtype for spec in specs)])
        more.set_shape([])
        for leaf, spec in zip(leaves, specs, strict=True):
            leaf.set_shape(spec.shape)
        batch = tf.nest.pack_sequence_as(self._signature, leaves)
        optional = tf.experimental.Optional
        return tf.cond(more, lambda: optional.from_value(batch), lambda: optional.empty(self._signature))

    def pull(self) -> tuple[Any, ...]:
        """Return whether there is a batch, and its leaves. At the end, zeros take the place of the leaves."""
        try:
            return (True, *tf.nest.flatten(next(self._batches)))
        except StopIteration:
            return (False, *self._padding)
        except Exception as error:
            self._fail(error)
            return (False, *self._padding)


def generator_dataset(make: MakeBatches, signature: Any, fail: Fail, *, is_building: Callable[[], bool]) -> Any:
    """Return a tf.data.Dataset, for `tf.distribute`. While `is_building()`, it returns only one batch."""

    def generate() -> Iterator[Any]:
        try:
            # To build the model, Keras needs one batch. The strategy would fetch more than the feed can replay.
            yield from itertools.islice(make(), 1) if is_building() else make()
        except Exception as error:
            fail(error)

    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF  # the pipeline shards
    options.experimental_optimization.inject_prefetch = False  # the feed prefetches
    return tf.data.Dataset.from_generator(generate, output_signature=signature).with_options(options)


def _weak_pull(traced: TracedBatches) -> Callable[[], tuple[Any, ...]]:
    """Return a `pull` with a weak reference. The model holds its traced graph, which must not hold the feed."""
    reference = weakref.ref(traced)

    def pull() -> tuple[Any, ...]:
        alive = reference()
        if alive is None:
            raise FeedError("the feed of this compiled loop no longer exists. Pass the feed to fit() again.")
        return alive.pull()

    return pull
