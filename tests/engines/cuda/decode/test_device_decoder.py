"""The device decoder after errors: its memory, and images that the host decodes."""

from collections import namedtuple

import numpy as np
import pytest
from tests.engines.cuda.decode.test_image_filler import (
    SIZES,
    decode_all,
    decode_with_pillow,
    framework,
    open_images,
    save_images,
)

from forebay.core.recorder import Recorder
from forebay.core.spec import DEVICE_ALIGNMENT, Layout
from forebay.engines.cuda.decode import image_filler
from forebay.engines.cuda.decode.image_filler import ImageFiller
from forebay.engines.cuda.engine import CudaEngine
from forebay.errors import DeviceError

__all__ = ["framework"]

OUT_OF_MEMORY = 5  # NVJPEG_STATUS_ALLOCATOR_FAILURE


class SomeRows(namedtuple("SomeRows", ["first", "count"])):
    """Consecutive rows of a source."""

    def numbers(self):
        return slice(self.first, self.first + self.count)


@pytest.fixture
def filler(tmp_path, framework, monkeypatch):
    """Return a filler that launches one kernel for each image. The images of the rows 2 and 3 are the largest."""
    monkeypatch.setattr(image_filler, "MAX_IMAGES", 1)
    save_images(tmp_path, [(64, 80), (16, 20), (64, 80), (16, 20)])  # images 1 and 3 are the rows 0 and 1
    engine = CudaEngine(framework)
    made = ImageFiller(engine, open_images(tmp_path).source, threads=1, recorder=Recorder())
    yield made
    made.close()
    engine.close()


def fail_at_launch(monkeypatch, filler, number):
    """Let one launch of the filler's kernel fail."""
    launch, launches = filler._resize.launch, iter(range(100))

    def launch_or_fail(*arguments, **options):
        if next(launches) == number:
            raise DeviceError("the launch failed")
        launch(*arguments, **options)

    monkeypatch.setattr(filler._resize, "launch", launch_or_fail)


def test_memory_that_a_queued_kernel_reads_stays_allocated_after_an_error(filler, framework, monkeypatch):
    layout = Layout.of(filler._source.specs, batch_rows=2, alignment=DEVICE_ALIGNMENT)
    memory = filler._engine.open_slot(layout.nbytes)
    fail_at_launch(monkeypatch, filler, 1)
    with pytest.raises(DeviceError, match="the launch failed"):
        filler.fill(memory, layout, SomeRows(0, 2))
    filler.fill(memory, layout, SomeRows(2, 2))
    filler._engine.drain()
    assert framework.gpu.faults == []
    filler._engine.close_slot(memory)


def test_without_memory_for_the_decoder_the_host_decodes(tmp_path, framework):
    save_images(tmp_path, SIZES)
    framework.nvjpeg.nvjpegDecodeBatchedInitialize = lambda *arguments: OUT_OF_MEMORY
    leaves, stats, _ = decode_all(open_images(tmp_path).batch(9), framework)
    assert stats["decoded_images"]["device"] == 0
    assert np.array_equal(leaves["image"], decode_with_pillow(tmp_path))
