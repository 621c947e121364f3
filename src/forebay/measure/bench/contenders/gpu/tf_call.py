"""No loader: NumPy gathers the rows of a batch at once, `tf.convert_to_tensor` copies them."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from forebay.measure.bench.contenders.gpu import index_batches
from forebay.measure.bench.data import array
from forebay.measure.bench.model import StartEpoch, Work

__all__ = ["epochs"]


def epochs(work: Work) -> StartEpoch:
    rows, generator = array(work), np.random.default_rng(0)

    def epoch() -> Iterator[Any]:
        for indices in index_batches(work, generator):
            with tf.device("/GPU:0"):
                batch = tf.convert_to_tensor(rows[indices])
            yield batch

    return epoch
