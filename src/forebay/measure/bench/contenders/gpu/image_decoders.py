"""Decoders of JPEG images, called by a plain loop.

`nvjpeg` and `nvimgcodec` decode on the GPU; the bytes of the files are in host memory. They neither resize the images
nor make batches, so a loader with the same decoder cannot be faster. `libjpeg_turbo` reads, decodes and resizes in
threads on the CPU, and copies batches to the GPU.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from forebay.measure.bench.contenders.gpu import endless_index_batches, split_into_epochs
from forebay.measure.bench.model import StartEpoch, Workload

__all__ = ["libjpeg_turbo", "nvimgcodec", "nvjpeg"]


def libjpeg_turbo(work: Workload) -> StartEpoch:
    """Decode and resize in one thread per core, and copy batches to the GPU asynchronously."""
    from forebay.measure.bench.contenders.simplejpeg import decoder_threads

    start_epoch = decoder_threads(work)

    def epoch() -> Iterator[dict[str, Any]]:
        for images, _ in start_epoch():
            yield {"image": torch.from_numpy(images).pin_memory().to("cuda", non_blocking=True)}

    return epoch


def nvjpeg(work: Workload) -> StartEpoch:
    """Call the hardware decoders with nvJPEG, as Forebay does."""
    from forebay.engines.cuda.nvjpeg import Nvjpeg

    torch.zeros(1, device="cuda")  # creates the CUDA context that nvJPEG needs
    decoder = Nvjpeg(is_gray=False)
    state: dict[str, Any] = {"nbytes": 0}

    def decode(contents: list[bytes]) -> None:
        headers = [decoder.parse(content) for content in contents]
        sizes = np.array([(header.height * header.width * 3, header.width * 3) for header in headers if header])
        ends = np.cumsum(sizes[:, 0])
        if ends[-1] > state["nbytes"]:
            state.update(nbytes=int(ends[-1]), memory=torch.empty(int(ends[-1]), dtype=torch.uint8, device="cuda"))
        pointers = state["memory"].data_ptr() + ends - sizes[:, 0]
        assert decoder.decode(contents, pointers, sizes[:, 1], torch.cuda.current_stream().cuda_stream)

    return split_into_epochs(work, _decode_batches(work, decode))


def nvimgcodec(work: Workload) -> StartEpoch:
    """Call the hardware decoders with nvImageCodec."""
    from nvidia import nvimgcodec as library

    decoder = library.Decoder(device_id=0, backends=[library.Backend(library.BackendKind.HW_GPU_ONLY)])
    state: dict[str, Any] = {"images": None}

    def decode(contents: list[bytes]) -> None:
        stream = torch.cuda.current_stream().cuda_stream
        state["images"] = decoder.decode(contents, images=state["images"], cuda_stream=stream)

    return split_into_epochs(work, _decode_batches(work, decode))


def _decode_batches(work: Workload, decode: Callable[[list[bytes]], None]) -> Iterator[dict[str, Any]]:
    contents = [path.read_bytes() for path in sorted(Path(work.path).glob("*/*.jpg"))]
    batch = torch.zeros((work.batch, *work.shape), dtype=torch.uint8, device="cuda")  # yielded for all batches
    for rows in endless_index_batches(work):
        decode([contents[row] for row in rows])
        yield {"image": batch}
