"""tf.data given to Keras's `fit`, as its guide teaches it."""

import tensorflow as tf

from forebay.measure.bench.contenders.gpu.labelled import images_and_labels
from forebay.measure.bench.contenders.tf_slices import WINDOW_ROWS
from forebay.measure.bench.model import StartEpoch, Work

__all__ = ["epochs"]


def epochs(work: Work) -> StartEpoch:
    with tf.device("/CPU:0"):  # or all of the rows go to the GPU and back first
        slices = tf.data.Dataset.from_tensor_slices(images_and_labels(work))
    dataset = slices.shuffle(WINDOW_ROWS).batch(work.batch, drop_remainder=True).prefetch(tf.data.AUTOTUNE)
    return lambda: dataset
