"""Images with labels, as a classifier is fitted on them."""

from typing import Any

import numpy as np

from forebay.measure.bench.data import array
from forebay.measure.bench.model import Work

__all__ = ["CLASSES", "images_and_labels"]

CLASSES = 10


def images_and_labels(work: Work) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    return array(work), np.arange(work.rows) % CLASSES
