"""upload_once on a GPU: cases of the CPU tests, and cases for a GPU."""

from pathlib import Path

import pytest
from tests.gpu.processes import FRAMEWORKS, SHARING, run_cases, run_script

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("device")]

HERE = Path(__file__)
CPU_CASES = HERE.parent.parent / "adapters/upload/upload_cases.py"
GPU_CASES = HERE.with_name("upload_cases.py")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("cases", [CPU_CASES, GPU_CASES], ids=["cpu-cases", "gpu-cases"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_framework_passes_the_same_cases(framework, cases):
    """Run each framework in its own process, because frameworks conflict in one process."""
    run_cases(cases, framework, **SHARING)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_script_may_end_with_cached_arrays(framework):
    script = (
        "import numpy as np\n"
        "from forebay.adapters.upload.upload_once import upload_once\n"
        "kept = np.zeros((1000, 5000), np.float32)\n"
        f"upload_once(kept, {framework!r})\n"
    )
    run_script(script)
