"""upload_once on a real GPU: what holds on the CPU holds there, and what only a GPU can show."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu

driver = pytest.importorskip("forebay.engines.cuda.driver")

HERE = Path(__file__)
EVERYWHERE = HERE.parent.parent / "upload_cases.py"
ON_GPU = HERE.with_name("upload_cases.py")
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


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_script_may_end_with_arrays_still_remembered(framework):
    script = (
        "import numpy as np\n"
        "from forebay.upload import upload_once\n"
        "kept = np.zeros((1000, 5000), np.float32)\n"
        f"upload_once(kept, {framework!r})\n"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=os.environ | SHARING, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
