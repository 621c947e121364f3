"""The feed on a real GPU, in each framework's own process: frameworks clash in one."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu

driver = pytest.importorskip("forebay.engines.cuda.driver")

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
SHARING = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
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


def run(cases, framework, **settings):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / cases)]
    environment = {name: value for name, value in os.environ.items() if name not in SHARING}
    environment |= {"FOREBAY_FRAMEWORK": framework, "TF_CPP_MIN_LOG_LEVEL": "2"} | settings
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=580, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_framework_is_fed(framework):
    run("feed_cases.py", framework, **SHARING)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("framework", ["jax", "tensorflow"])
def test_frameworks_that_take_all_memory_are_fed(framework):
    if find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    run("feed_cases.py", framework, FOREBAY_STRESS_BATCHES="2000")


@pytest.mark.timeout(600)
@pytest.mark.skipif(find_spec("jax") is None, reason="jax is not installed")
def test_jax_is_fed_where_it_donates_nothing():
    run("feed_cases.py", "jax", **SHARING, JAX_DEBUG_NANS="1", FOREBAY_STRESS_BATCHES="500")


@pytest.mark.timeout(600)
@pytest.mark.skipif(find_spec("tensorflow") is None, reason="tensorflow is not installed")
def test_functions_and_keras():
    run("tensorflow_cases.py", "tensorflow", **SHARING)


@pytest.mark.timeout(600)
@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_captures_and_little_memory():
    run("torch_cases.py", "torch")
