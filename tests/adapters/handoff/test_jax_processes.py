"""Global arrays of JAX over the devices of several processes, and over eight devices of one process."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.pipeline.ranks.processes import environment, free_port

PROCESS = Path(__file__).with_name("jax_process.py")
ROWS = 192

pytestmark = [pytest.mark.slow, pytest.mark.long]


def run_processes(folder, count, devices, **job):
    """Start `count` processes with `devices` CPU devices each, and return their records."""
    folder.mkdir()
    flags = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"}
    shared = {"rows": ROWS, "count": count, "port": free_port(), **job}
    jobs = [shared | {"rank": rank, "out": str(folder / f"{rank}.json")} for rank in range(count)]
    started = [
        subprocess.Popen(
            [sys.executable, str(PROCESS), json.dumps(each)],
            env=environment() | flags,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for each in jobs
    ]
    try:
        outputs = [process.communicate(timeout=500)[0] for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0] * count, "\n".join(outputs)
    return [json.loads(Path(each["out"]).read_text()) for each in jobs]


def rows_of(record):
    return [row for batch in record["batches"] for row in batch["rows"]]


def test_two_processes_feed_one_global_batch(tmp_path):
    first, second = run_processes(tmp_path / "two", 2, 4, batch_rows=16)
    assert first["batches"] == second["batches"]
    assert sorted(rows_of(first)) == list(range(ROWS))
    assert [len(batch["rows"]) for batch in first["batches"]] == [32] * 6
    assert first["batches"][0]["parts"] == [[4]] * 4
    assert "the global batch has the rows of 2 processes" in first["explain"]
    for record in (first, second):
        assert "all 2 processes the same rows" in record["errors"][0]
        assert "expects part" in record["errors"][1]


def test_an_epoch_of_two_processes_resumes_on_eight_devices_of_one(tmp_path):
    two = run_processes(tmp_path / "two", 2, 4, batch_rows=16, steps=2)
    assert two[0]["state"] == two[1]["state"]
    (one,) = run_processes(tmp_path / "one", 1, 8, batch_rows=32, state=two[0]["state"])
    assert sorted(rows_of(two[0]) + rows_of(one)) == list(range(ROWS))
    assert one["batches"][0]["parts"] == [[4]] * 8
