"""simplejpeg and OpenCV in plain threads, on image files."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cv2
import numpy as np
import simplejpeg

from forebay.measure.bench.data import list_images
from forebay.measure.bench.model import StartEpoch, Workload

__all__ = ["decoder_threads"]


def decoder_threads(work: Workload) -> StartEpoch:
    """Decode and resize image files in threads, with the libraries of Forebay's decoder.

    This is the baseline of the case with image files.
    """
    paths, labels = list_images(work)
    generator, (height, width) = np.random.default_rng(0), work.shape[:2]
    pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)))

    def load(row: int, out: np.ndarray[Any, Any]) -> None:
        with open(paths[row], "rb") as file:  # noqa: PTH123 - Path.open takes longer
            data = file.read()
        image = simplejpeg.decode_jpeg(data, "RGB", min_height=height, min_width=width)
        cv2.resize(image, (width, height), dst=out, interpolation=cv2.INTER_LINEAR)

    def epoch() -> Iterator[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
        order = generator.permutation(len(paths))
        for start in range(0, len(paths), work.batch):
            rows = order[start : start + work.batch]
            images = np.empty((len(rows), *work.shape), np.uint8)
            list(pool.map(load, rows.tolist(), images))
            yield images, labels[rows]

    return epoch
