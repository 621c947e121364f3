"""Readback and all_finite on a real GPU: what holds on the CPU holds there, and what only a GPU can show."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu

driver = pytest.importorskip("forebay.engines.cuda.driver")

HERE = Path(__file__)
EVERYWHERE = HERE.parent.parent / "readback_cases.py"
ON_GPU = HERE.with_name("readback_cases.py")
SHARING = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_FORCE_GPU_ALLOW_GROWTH": "true", "TF_CPP_MIN_LOG_LEVEL": "3"}
FRAMEWORKS = [
    pytest.param(name, marks=pytest.mark.skipif(find_spec(name) is None, reason=f"{name} is not installed"))
    for name in ("torch", "jax", "tensorflow", "cupy")
]


@pytest.fixture(scope="module", autouse=True)
def device():
    try:
        return driver.Device(0)
    except (OSError, RuntimeError) as error:
        pytest.skip(str(error))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("cases", [EVERYWHERE, ON_GPU], ids=["everywhere", "on-gpu"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_framework_passes_the_same_cases(framework, cases):
    """Frameworks clash in one process, so each has its own."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(cases)]
    environment = os.environ | SHARING | {"FOREBAY_FRAMEWORK": framework}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


ONES = {
    "torch": "import torch; ones = torch.ones(4000, 4000, device='cuda')",
    "jax": "import jax.numpy as jnp; ones = jnp.ones((4000, 4000))",
    "tensorflow": "import tensorflow as tf; ones = tf.ones((4000, 4000))",
    "cupy": "import cupy as cp; ones = cp.ones((4000, 4000))",
}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_script_may_end_with_results_on_their_way(framework):
    script = (
        f"{ONES[framework]}\n"
        "from forebay.readback import Readback\n"
        "readback = Readback()\n"
        "for _ in range(20): readback.put(ones @ ones)\n"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=os.environ | SHARING, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
