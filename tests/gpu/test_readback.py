"""Readback and all_finite on a GPU: cases of the CPU tests, and cases for a GPU."""

from pathlib import Path

import pytest
from tests.gpu.processes import FRAMEWORKS, SHARING, run_cases, run_script

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("device")]

HERE = Path(__file__)
CPU_CASES = HERE.parent.parent / "adapters/readback/readback_cases.py"
GPU_CASES = HERE.with_name("readback_cases.py")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("cases", [CPU_CASES, GPU_CASES], ids=["cpu-cases", "gpu-cases"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_framework_passes_the_same_cases(framework, cases):
    """Run each framework in its own process, because frameworks conflict in one process."""
    run_cases(cases, framework, **SHARING)


ONES = {
    "torch": "import torch; ones = torch.ones(4000, 4000, device='cuda')",
    "jax": "import jax.numpy as jnp; ones = jnp.ones((4000, 4000))",
    "tensorflow": "import tensorflow as tf; ones = tf.ones((4000, 4000))",
    "cupy": "import cupy as cp; ones = cp.ones((4000, 4000))",
}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_script_may_end_with_results_in_flight(framework):
    script = (
        f"{ONES[framework]}\n"
        "from forebay.adapters.readback.readback import Readback\n"
        "readback = Readback()\n"
        "for _ in range(20): readback.put(ones @ ones)\n"
    )
    run_script(script)
