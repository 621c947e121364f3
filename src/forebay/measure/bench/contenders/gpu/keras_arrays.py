"""NumPy arrays given to Keras's `fit`."""

from forebay.measure.bench.contenders.gpu.labelled import images_and_labels
from forebay.measure.bench.model import StartEpoch, Work

__all__ = ["epochs"]


def epochs(work: Work) -> StartEpoch:
    arrays = images_and_labels(work)
    return lambda: arrays
