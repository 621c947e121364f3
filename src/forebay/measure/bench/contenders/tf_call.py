"""`tf.convert_to_tensor` on a ready batch: what TensorFlow does with every NumPy array it is given."""

import tensorflow as tf

from forebay.measure.bench.contenders.ready_batches import converted
from forebay.measure.bench.model import StartEpoch, Work

__all__ = ["epochs"]


def epochs(work: Work) -> StartEpoch:
    return converted(work, tf.convert_to_tensor)
