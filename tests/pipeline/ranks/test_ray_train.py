"""Ray Train outside its workers. Feeds inside them: tests/transforms/workers/on_ray/test_train.py."""

import subprocess
import sys

import pytest
from tests.pipeline.ranks.processes import environment


@pytest.mark.parametrize("version", ["0", "1"])
def test_ray_train_reports_no_rank_outside_its_workers(version):
    script = "import ray.train, forebay.pipeline.ranks; print(forebay.pipeline.ranks.detect_rank())"
    settings = environment() | {"PYTHONWARNINGS": "error::UserWarning", "RAY_TRAIN_V2_ENABLED": version}
    printed = subprocess.check_output([sys.executable, "-c", script], env=settings, text=True, timeout=500)
    assert printed == "0 of 1\n"
