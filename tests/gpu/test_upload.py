"""upload_once on a real GPU: what holds on the CPU holds there, and what only a GPU can show."""

from pathlib import Path

import pytest
from tests.gpu.processes import FRAMEWORKS, SHARING, run_cases, run_script

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("device")]

HERE = Path(__file__)
EVERYWHERE = HERE.parent.parent / "adapters/upload/upload_cases.py"
ON_GPU = HERE.with_name("upload_cases.py")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("cases", [EVERYWHERE, ON_GPU], ids=["everywhere", "on-gpu"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_framework_passes_the_same_cases(framework, cases):
    """Frameworks clash in one process, so each has its own."""
    run_cases(cases, framework, **SHARING)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_script_may_end_with_arrays_still_remembered(framework):
    script = (
        "import numpy as np\n"
        "from forebay.adapters.upload.upload_once import upload_once\n"
        "kept = np.zeros((1000, 5000), np.float32)\n"
        f"upload_once(kept, {framework!r})\n"
    )
    run_script(script)
