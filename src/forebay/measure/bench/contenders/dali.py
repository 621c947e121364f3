"""DALI without a GPU, on image files."""

import os
from collections.abc import Iterator
from typing import Any

from nvidia.dali import fn, pipeline_def, types

from forebay.measure.bench.model import StartEpoch, Workload

__all__ = ["image_folder"]


def image_folder(work: Workload) -> StartEpoch:
    """Read, decode and resize with the CPU operators of DALI."""

    def define() -> Any:
        files, labels = fn.readers.file(file_root=work.path, random_shuffle=True, name="files")
        images = fn.decoders.image(files, device="cpu", output_type=types.RGB)
        return fn.resize(images, size=work.shape[:2], interp_type=types.INTERP_TRIANGULAR), labels

    threads = len(os.sched_getaffinity(0))
    pipeline = pipeline_def(define)(batch_size=work.batch, num_threads=threads, device_id=None, prefetch_queue_depth=3)
    pipeline.build()

    def epoch() -> Iterator[Any]:
        for _ in range(work.batches):
            images, labels = pipeline.run()
            yield images.as_array(), labels.as_array()

    return epoch
