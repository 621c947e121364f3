import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import forebay as fb
from forebay.errors import DeviceError, FrameworkError

CASES = Path(__file__).with_name("cases.py")
OWN_CASES = {  # of what one framework alone does
    "tensorflow": [str(CASES.with_name("function_cases.py"))],
    "jax": [str(CASES.with_name("jax_cases.py"))],
}
pytestmark = pytest.mark.timeout(600)  # frameworks are imported


@pytest.mark.parametrize("framework", ["torch", "tensorflow", "jax"])
def test_every_framework_passes_the_same_cases(framework):
    """Frameworks clash in one process, so each has its own."""
    environment = os.environ | {"FOREBAY_FRAMEWORK": framework, "TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu"}
    files = [str(CASES), *OWN_CASES.get(framework, [])]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


@pytest.mark.parametrize("framework", ["torch", "tensorflow", "jax"])
def test_a_script_may_end_with_batches_still_alive(framework):
    script = (
        "import numpy as np, forebay as fb\n"
        f"feed = fb.from_arrays(np.zeros((1000, 10), np.float32)).batch(10).feed({framework!r})\n"
        "kept = [batch for _, batch in zip(range(50), feed)]\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr


def test_an_unknown_framework_is_refused_with_those_there_are():
    with pytest.raises(FrameworkError, match=r"'pytorch': choose one of 'numpy', 'torch'"):
        fb.from_arrays(np.arange(10)).batch(2).feed("pytorch")


def test_a_framework_that_is_not_installed_says_how_to_get_it():
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "import numpy as np, forebay as fb\n"
        "fb.from_arrays(np.arange(10)).batch(2).feed('torch')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=500, check=False)
    assert "'torch' is not installed" in done.stderr
    assert "pip install torch" in done.stderr


def test_a_device_that_is_not_there_is_refused():
    with pytest.raises(DeviceError, match="device='tpu:7' is unknown"):
        fb.from_arrays(np.arange(10)).batch(2).feed("numpy", device="tpu:7")


def test_numpy_has_no_arrays_on_a_device():
    with pytest.raises(DeviceError, match="feed 'cupy'"):
        fb.from_arrays(np.arange(10)).batch(2).feed("numpy", device="cuda")
