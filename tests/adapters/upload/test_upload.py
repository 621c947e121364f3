"""upload_once: found again by identity, never stale unseen, nothing left behind."""


import numpy as np
import pytest

from forebay.adapters.upload import upload_once as upload
from forebay.adapters.upload.upload_once import forget, upload_once
from forebay.errors import DeviceError

QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}


class Tensor:
    """What a framework would hold."""

    def __init__(self, array):
        self.content = array.copy()


class Counting:
    """An uploader that remembers what it was given."""

    def __init__(self):
        self.uploads = []
        self.error = None

    def upload(self, array):
        if self.error is not None:
            raise self.error
        self.uploads.append(array.copy())
        return Tensor(array)


@pytest.fixture
def place(monkeypatch):
    counting = Counting()
    monkeypatch.setattr(upload, "uploader", lambda to, device: counting)
    return counting


@pytest.fixture
def array():
    made = np.zeros(10)
    yield made
    forget(made)


@pytest.mark.parametrize("device", ["cuda:99", "tpu"])
def test_a_device_that_is_not_there_is_refused(array, device):
    with pytest.raises(DeviceError):
        upload_once(array, "numpy", device=device)
    assert array.flags.writeable
