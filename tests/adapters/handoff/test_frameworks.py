
import numpy as np
import pytest

import forebay as fb
from forebay.errors import DeviceError

pytestmark = pytest.mark.timeout(600)  # frameworks are imported


def test_numpy_has_no_arrays_on_a_device():
    with pytest.raises(DeviceError, match="feed 'cupy'"):
        fb.from_arrays(np.arange(10)).batch(2).feed("numpy", device="cuda")
