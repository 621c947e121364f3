"""Keras' own way with arrays in `fit`, used directly: a vectorised gather inside tf.data."""

from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter

from forebay.measure.bench.data import array
from forebay.measure.bench.model import StartEpoch, Work

__all__ = ["epochs"]


def epochs(work: Work) -> StartEpoch:
    dataset = ArrayDataAdapter(array(work), batch_size=work.batch, shuffle=True).get_tf_dataset()
    return lambda: dataset
