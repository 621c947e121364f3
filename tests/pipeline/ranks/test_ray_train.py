"""A real TorchTrainer of two workers: Ray Train and torch.distributed report the same rank."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.pipeline.ranks.processes import all_rows, environment, step_counts

SCRIPT = Path(__file__).with_name("ray_train.py")


def test_ray_train_workers_share_an_epoch_and_take_the_same_steps(tmp_path):
    with tempfile.TemporaryDirectory(
        prefix="ray", dir="/tmp", ignore_cleanup_errors=True
    ) as short:  # a short path, for sockets
        command = [sys.executable, str(SCRIPT), str(tmp_path), short]
        done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    assert all_rows(ranks) == list(range(41))
    assert step_counts(ranks) == {5}
    assert all("reported by Ray Train and torch.distributed" in rank["explain"] for rank in ranks)


def test_ray_train_reports_no_rank_outside_its_workers():
    script = "import ray.train, forebay.pipeline.ranks; print(forebay.pipeline.ranks.detect_rank())"
    quiet = environment() | {"PYTHONWARNINGS": "error::UserWarning"}
    versions = [quiet | {"RAY_TRAIN_V2_ENABLED": version} for version in ("0", "1")]
    printed = [
        subprocess.check_output([sys.executable, "-c", script], env=env, text=True, timeout=500) for env in versions
    ]
    assert printed == ["0 of 1\n", "0 of 1\n"]
