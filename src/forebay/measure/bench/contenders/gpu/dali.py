"""DALI with image files, and with batches of an external source.

An external source is Python code that makes the batches.
"""

import os
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
from nvidia.dali import fn, pipeline_def, types
from nvidia.dali.plugin.pytorch import DALIGenericIterator

from forebay.measure.bench.contenders.gpu import split_into_epochs
from forebay.measure.bench.data import make_array
from forebay.measure.bench.model import StartEpoch, Workload

__all__ = ["external_source", "image_folder"]

THREADS = 4  # threads of the pipeline in `external_source`, which do not gather rows
BOX_AREA, BOX_RATIO = (0.08, 1.0), (3 / 4, 4 / 3)  # the limits of `fb.random_resized_crop`
DTYPES = {"uint8": types.UINT8, "float32": types.FLOAT}


def external_source(work: Workload) -> StartEpoch:
    """Gather batches in Python, and copy them to the GPU with DALI.

    The option "workers" sets the number of worker processes that gather. Without it, the consumer's thread gathers.
    """
    workers = int(work.options.get("workers", 0))
    # DALI forks the worker processes. Start them here, because a process must not fork after it has used CUDA.
    options = {"py_num_workers": workers, "py_start_method": "fork"} if workers else {}
    make_pipeline = pipeline_def(_define_graph)
    pipeline = make_pipeline(work, workers, batch_size=work.batch, num_threads=THREADS, device_id=0, **options)
    if workers:
        pipeline.start_py_workers()
    return split_into_epochs(work, _batches(DALIGenericIterator([pipeline], ["rows"])))


def image_folder(work: Workload) -> StartEpoch:
    """Read image files, and decode and resize them on the GPU where DALI supports it.

    The option "hardware_load" is the share of images for the hardware decoders, from 0 to 1. With the option "boxes",
    DALI crops a random box of each image: "decode" passes the box to the decoder, "resize" crops the decoded image.
    """
    make_pipeline = pipeline_def(_define_image_graph)
    threads = len(os.sched_getaffinity(0))
    pipeline = make_pipeline(work, batch_size=work.batch, num_threads=threads, device_id=0, prefetch_queue_depth=3)
    return split_into_epochs(work, _image_batches(DALIGenericIterator([pipeline], ["image", "label"])))


class DaliBatchSource:
    """Makes a batch from its number.

    DALI does not restart the numbers at a new epoch. Each worker process has a copy of this object and makes only some
    of the batches. So a batch must depend only on its number.
    """

    def __init__(self, work: Workload, workers: int) -> None:
        self._rows, self._work, self._workers = make_array(work), work, workers

    def __call__(self, iteration: int) -> Any:
        epoch, position = divmod(iteration, self._work.batches)
        start = position * self._work.batch
        indices = _permutation(epoch, self._work.rows)[start : start + self._work.batch]
        # A worker process of DALI needs a list of rows, and copies each row directly into shared memory.
        return [self._rows[row] for row in indices] if self._workers else self._rows[indices]


@lru_cache(maxsize=2)
def _permutation(epoch: int, rows: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(epoch).permutation(rows)


def _define_graph(work: Workload, workers: int) -> Any:
    prefetch = {"parallel": True, "prefetch_queue_depth": workers} if workers else {}
    options = {"batch": True, "dtype": DTYPES[work.dtype], "ndim": len(work.shape), **prefetch}
    return fn.external_source(source=DaliBatchSource(work, workers), **options).gpu()


def _define_image_graph(work: Workload) -> Any:
    files, labels = fn.readers.file(file_root=work.path, random_shuffle=True, name="files")
    decoding = {"device": "mixed", "output_type": types.RGB, "hw_decoder_load": work.options["hardware_load"]}
    resizing = {"size": work.shape[:2], "interp_type": types.INTERP_TRIANGULAR}
    box = {"random_area": BOX_AREA, "random_aspect_ratio": BOX_RATIO}
    crop = work.options.get("boxes")
    decode = fn.decoders.image_random_crop if crop == "decode" else fn.decoders.image
    images = decode(files, **decoding, **(box if crop == "decode" else {}))
    if crop == "resize":
        return fn.random_resized_crop(images, **resizing, **box), labels.gpu()
    return fn.resize(images, **resizing), labels.gpu()


def _image_batches(iterator: Any) -> Iterator[Any]:
    for (outputs,) in iterator:
        yield outputs


def _batches(iterator: Any) -> Iterator[Any]:
    for (outputs,) in iterator:
        yield outputs["rows"]
