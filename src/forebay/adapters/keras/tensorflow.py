"""Batches in the three forms that the TensorFlow trainer of Keras can iterate.

An execution is one call of Keras's compiled function, which runs `steps_per_execution` steps.

- Eager tensors, if an execution has one step or batches are on a GPU. Keras takes each batch in Python and passes it to
  its compiled step. No batch is copied, and exceptions keep their type.
- A traced iterator, if an execution has several steps and batches are on the host. The loop over the steps runs inside
  TensorFlow, which calls Python for each batch. The iterator must be the same object in every epoch; otherwise
  TensorFlow traces the loop again.
- A `tf.data.Dataset` under a `tf.distribute` strategy, which accepts no other form.

In the last two forms, TensorFlow calls Python, and an exception would lose its type. So the iterator stores the
exception and ends. The feed raises the exception when Keras reports the end of the epoch.
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
    "batch_signature",
    "generator_dataset",
    "is_distributed",
    "weights_signature",
]

MakeBatches = Callable[[], EpochBatches]
StoreError = Callable[[Exception], None]


def is_distributed(model: Any) -> bool:
    """Return whether the user has chosen a `tf.distribute` strategy for the model.

    TensorFlow's default strategy does not count, because it does not distribute data.
    """
    with model.distribute_strategy.scope():
        return bool(tf.distribute.has_strategy())


def batch_signature(specs: Sequence[ArraySpec], *, rows: int | None) -> list[Any]:
    """Return a `tf.TensorSpec` for each leaf of a batch of `rows` rows.

    `rows` is None if the last batch may be shorter.
    """
    return [tf.TensorSpec((rows, *spec.shape), spec.dtype) for spec in specs]


def weights_signature(labels: Any) -> Any:
    """Return the `tf.TensorSpec` of the weights of rows, for the `tf.TensorSpec` of their labels.

    Labels are numbers or one-hot rows.
    """
    return tf.TensorSpec(labels.shape[:-1] if labels.shape.rank > 1 else labels.shape, keras.config.floatx())


class EagerDataset:
    """Returns a new iterator of eager tensors for each epoch."""

    def __init__(self, make_batches: MakeBatches) -> None:
        self._make_batches = make_batches

    def __iter__(self) -> "EagerBatches":
        return EagerBatches(self._make_batches())


class EagerBatches:
    """An iterator over batches of eager tensors.

    Keras calls `iter()` for each execution, and `next()` for each step of the execution.
    """

    def __init__(self, batches: EpochBatches) -> None:
        self._batches = batches
        self._execution_steps = 0  # finished steps of this execution

    def __iter__(self) -> "EagerBatches":
        self._execution_steps = 0
        return self

    def __next__(self) -> Any:
        if tf.inside_function():
            # The tensors would become constants of the graph, and every step would train on the same batch.
            raise FeedError(
                "a feed was iterated inside a tf.function, which would reuse its first batch forever. An older Keras "
                "or your make_train_function() does this. Upgrade Keras, or take batches outside the function."
            )
        try:
            batch = next(self._batches)
        except StopIteration:
            if self._execution_steps:
                raise
            # In the first step of an execution, Keras expects this error. It fails on StopIteration, because it has no
            # outputs to return.
            raise tf.errors.OutOfRangeError(None, None, "the epoch is over") from None
        self._execution_steps += 1
        return batch


class TracedDataset:
    """Returns the same traced iterator for each epoch, with the batches of the epoch."""

    def __init__(self, traced: "TracedBatches", make_batches: MakeBatches) -> None:
        self._traced = traced
        self._make_batches = make_batches

    def __iter__(self) -> "TracedBatches":
        return self._traced.begin(self._make_batches())


class TracedBatches(tf.distribute.DistributedIterator):  # type: ignore[misc]  # Keras traces this type, and TensorFlow is untyped
    """The iterator inside Keras's compiled loop over the steps of an execution."""

    def __init__(self, signature: Any, store_error: StoreError) -> None:
        self._signature = signature
        self._store_error = store_error
        self._batches: Iterator[Any] = iter(())
        specs = tf.nest.flatten(signature)
        self._end_leaves = [tf.zeros([length or 1 for length in spec.shape], spec.dtype) for spec in specs]

    def begin(self, batches: EpochBatches) -> "TracedBatches":
        """Take the next elements from these batches, and return this iterator."""
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
        """Return a `tf.experimental.Optional` with the next batch; it is empty after the last batch."""
        specs = tf.nest.flatten(self._signature)
        with tf.device("CPU:0"):
            has_batch, *leaves = tf.py_function(_weak_next_leaves(self), [], [tf.bool, *(spec.dtype for spec in specs)])
        has_batch.set_shape([])
        for leaf, spec in zip(leaves, specs, strict=True):
            leaf.set_shape(spec.shape)
        batch = tf.nest.pack_sequence_as(self._signature, leaves)
        optional = tf.experimental.Optional
        return tf.cond(has_batch, lambda: optional.from_value(batch), lambda: optional.empty(self._signature))

    def next_leaves(self) -> tuple[Any, ...]:
        """Return True and the next batch's leaves, or False and zeros at the end."""
        try:
            return (True, *tf.nest.flatten(next(self._batches)))
        except StopIteration:
            return (False, *self._end_leaves)
        except Exception as error:
            self._store_error(error)
            return (False, *self._end_leaves)


def generator_dataset(
    make_batches: MakeBatches, signature: Any, store_error: StoreError, *, is_building: Callable[[], bool]
) -> Any:
    """Return a tf.data.Dataset for `tf.distribute`.

    While `is_building()` returns True, the dataset has only one batch. Keras builds the model with this batch, but the
    strategy would fetch more batches than the feed can replay.
    """

    def generate() -> Iterator[Any]:
        try:
            yield from itertools.islice(make_batches(), 1) if is_building() else make_batches()
        except Exception as error:
            store_error(error)

    options = tf.data.Options()
    # TensorFlow needs neither to shard nor to prefetch: the pipeline shards the rows, and the feed prefetches.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    options.experimental_optimization.inject_prefetch = False
    return tf.data.Dataset.from_generator(generate, output_signature=signature).with_options(options)


def _weak_next_leaves(traced: TracedBatches) -> Callable[[], tuple[Any, ...]]:
    """Return a function that calls `traced.next_leaves` through a weak reference.

    The model refers to the traced graph, which refers to this function and must not keep the feed alive.
    """
    reference = weakref.ref(traced)

    def next_leaves() -> tuple[Any, ...]:
        traced_batches = reference()
        if traced_batches is None:
            raise FeedError("the feed of this compiled loop no longer exists. Pass the feed to fit() again.")
        return traced_batches.next_leaves()

    return next_leaves
