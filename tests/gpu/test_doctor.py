"""The doctor on a real GPU. Each framework has its own process."""

from pathlib import Path

import pytest
from tests.gpu.processes import FRAMEWORKS, SHARING, run_cases

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("device")]

CASES = Path(__file__).with_name("doctor_cases.py")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_framework_passes_the_doctor_cases(framework):
    run_cases(CASES, framework, **SHARING)
