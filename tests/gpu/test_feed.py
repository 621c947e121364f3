"""The feed on a real GPU. Each framework has its own process."""

from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.gpu.processes import FRAMEWORKS, SHARING, run_cases

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("device")]

HERE = Path(__file__).parent


@pytest.mark.timeout(600)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_framework_passes_the_feed_cases(framework):
    run_cases(HERE / "feed_cases.py", framework, **SHARING)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("framework", ["jax", "tensorflow"])
def test_frameworks_that_preallocate_all_memory_pass_the_feed_cases(framework):
    if find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    run_cases(HERE / "feed_cases.py", framework, FOREBAY_STRESS_BATCHES="2000")


@pytest.mark.timeout(600)
@pytest.mark.skipif(find_spec("jax") is None, reason="jax is not installed")
def test_jax_passes_the_feed_cases_if_it_does_not_donate_buffers():
    run_cases(HERE / "feed_cases.py", "jax", **SHARING, JAX_DEBUG_NANS="1", FOREBAY_STRESS_BATCHES="500")


@pytest.mark.timeout(600)
@pytest.mark.skipif(find_spec("tensorflow") is None, reason="tensorflow is not installed")
def test_tensorflow_graphs_work_with_feeds():
    run_cases(HERE / "tensorflow_cases.py", "tensorflow", **SHARING)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("framework", [each for each in FRAMEWORKS if each.values != ("cupy",)])
def test_every_keras_backend_passes_the_keras_cases(framework):
    run_cases(HERE / "keras_cases.py", framework, **SHARING, KERAS_BACKEND=framework)


@pytest.mark.timeout(600)
@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_feeds_work_in_cuda_graph_captures_of_pytorch_and_with_little_memory():
    run_cases(HERE / "torch_cases.py", "torch")
