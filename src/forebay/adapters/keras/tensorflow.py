"""Batches in the three forms that Keras's TensorFlow trainer can iterate.

- Eager tensors, when an execution is one step, or batches are on a GPU: Keras calls its compiled step on each. No copy,
  errors keep their type.
- A traced iterator, when an execution is several steps on the host: Keras's loop runs inside TensorFlow and calls back
  for each batch. It must be the same object in every epoch, or the loop is traced anew.
- A `tf.data.Dataset`, under a `tf.distribute` strategy, which distributes nothing else.

In the last two Python runs inside TensorFlow, where an exception loses its type: there an error ends the data, and the
feed raises it as soon as Keras tells it that the epoch is over.
"""

import itertools
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from forebay.adapters.keras.epochs import Batches
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

MakeBatches = Callable[[], Batches]
Fail = Callable[[Exception], None]


def distributes(model: Any) -> bool:
    """Whether the model trains under a strategy of the user's, not the default one, which leaves data alone."""
    with model.distribute_strategy.scope():
        return bool(tf.distribute.has_strategy())


def specs_of(specs: Sequence[ArraySpec], *, rows: int | None) -> list[Any]:
    """What TensorFlow must know of a batch before it sees one; `rows` is None where the last batch may be short."""
    return [tf.TensorSpec((rows, *spec.shape), spec.dtype) for spec in specs]


def weights_spec(labels: Any) -> Any:
    """What class weights for these labels look like: one for each, whether they are numbers or one-hot rows."""
    return tf.TensorSpec(labels.shape[:-1] if labels.shape.rank > 1 else labels.shape, keras.config.floatx())


class EagerDataset:
    """Gives a fresh iterator over eager tensors for each epoch."""

    def __init__(self, make: MakeBatches) -> None:
        self._make = make

    def __iter__(self) -> "EagerBatches":
        return EagerBatches(self._make())


class EagerBatches:
    """Batches of eager tensors. Keras calls `iter()` at each execution, and `next()` for each of its steps."""

    def __init__(self, batches: Batches) -> None:
        self._batches = batches
        self._given = 0  # in this execution

    def __iter__(self) -> "EagerBatches":
        self._given = 0
        return self

    def __next__(self) -> Any:
        if tf.inside_function():
            # Its tensors would become constants of the graph: every step would train on this one batch.
            raise FeedError(
                "a feed was iterated inside a tf.function, which would see its first batch for ever. An older Keras "
                "does that, or your own make_train_function(): upgrade Keras, or take batches outside the function."
            )
        try:
            batch = next(self._batches)
        except StopIteration:
            if self._given:
                raise
            # Keras has no outputs to return from an execution without a step, and fails on StopIteration there.
            raise tf.errors.OutOfRangeError(None, None, "the epoch is over") from None
        self._given += 1
        return batch


class TracedDataset:
    """Gives the one traced iterator for each epoch, set to begin it."""

    def __init__(self, traced: "TracedBatches", make: MakeBatches) -> None:
        self._traced = traced
        self._make = make

    def __iter__(self) -> "TracedBatches":
        return self._traced.begin(self._make())


class TracedBatches(tf.distribute.DistributedIterator):  # type: ignore[misc]  # Keras traces this type, and TensorFlow is untyped
    """Asked from inside Keras's compiled loop for the next batch, or for the news that there is none."""

    def __init__(self, signature: Any, fail: Fail) -> None:
        self._signature = signature
        self._fail = fail
        self._batches: Iterator[Any] = iter(())
        specs = tf.nest.flatten(signature)
        self._filler = [tf.zeros([length or 1 for length in spec.shape], spec.dtype) for spec in specs]

    def begin(self, batches: Batches) -> "TracedBatches":
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
        """A batch, or the empty optional at the epoch's end: what the loop of several steps is written for."""
        specs = tf.nest.flatten(self._signature)
        with tf.device("CPU:0"):
            more, *leaves = tf.py_function(_weakly(self), [], [tf.bool, *(spec.dtype for spec in specs)])
        more.set_shape([])
        for leaf, spec in zip(leaves, specs, strict=True):
            leaf.set_shape(spec.shape)
        batch = tf.nest.pack_sequence_as(self._signature, leaves)
        optional = tf.experimental.Optional
        return tf.cond(more, lambda: optional.from_value(batch), lambda: optional.empty(self._signature))

    def pull(self) -> tuple[Any, ...]:
        try:
            return (True, *tf.nest.flatten(next(self._batches)))
        except StopIteration:
            return (False, *self._filler)
        except Exception as error:
            self._fail(error)
            return (False, *self._filler)


def generator_dataset(make: MakeBatches, signature: Any, fail: Fail, *, looks: Callable[[], bool]) -> Any:
    """A real dataset, for `tf.distribute`. While `looks()`, Keras wants one batch to see its shape, and gets one."""

    def generate() -> Iterator[Any]:
        try:
            # The strategy fetches several batches at once, more than could be handed out again.
            yield from itertools.islice(make(), 1) if looks() else make()
        except Exception as error:
            fail(error)

    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF  # shard() does that
    options.experimental_optimization.inject_prefetch = False  # the feed does that
    return tf.data.Dataset.from_generator(generate, output_signature=signature).with_options(options)


def _weakly(traced: TracedBatches) -> Callable[[], tuple[Any, ...]]:
    """The model keeps its traced graph, and must not keep the feed with it."""
    reference = weakref.ref(traced)

    def pull() -> tuple[Any, ...]:
        alive = reference()
        if alive is None:
            raise FeedError("the feed of this compiled loop is gone: pass the feed to fit() again.")
        return alive.pull()

    return pull
