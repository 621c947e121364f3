"""Errors of feeds to unknown or missing frameworks and devices."""

import numpy as np
import pytest
from tests.support.run_python import run_python

import forebay as fb
from forebay.errors import DeviceError, FrameworkError

pytestmark = pytest.mark.timeout(600)  # frameworks are imported


def test_an_unknown_framework_is_refused_with_the_known_frameworks():
    with pytest.raises(FrameworkError, match=r"'mxnet'. Choose one of 'numpy', 'torch'"):
        fb.from_arrays(np.arange(10)).batch(2).feed("mxnet")


@pytest.mark.parametrize("framework", ["NumPy", np])
def test_the_error_for_a_module_or_capitals_names_the_framework(framework):
    with pytest.raises(FrameworkError, match=r"Write feed\('numpy'\)."):
        fb.from_arrays(np.arange(10)).batch(2).feed(framework)


def test_the_error_for_a_missing_framework_names_its_package():
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "import numpy as np, forebay as fb\n"
        "fb.from_arrays(np.arange(10)).batch(2).feed('torch')\n"
    )
    done = run_python("-c", script)
    assert "'torch' is not installed" in done.stderr
    assert "pip install torch" in done.stderr


def test_an_unknown_device_is_refused():
    with pytest.raises(DeviceError, match="device='tpu:7' is unknown"):
        fb.from_arrays(np.arange(10)).batch(2).feed("numpy", device="tpu:7")


def test_numpy_has_no_arrays_on_a_device():
    with pytest.raises(DeviceError, match=r"feed\('cupy'\)"):
        fb.from_arrays(np.arange(10)).batch(2).feed("numpy", device="cuda")
