"""Global batches of several processes: arrays of JAX, and per-replica values of TensorFlow."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.pipeline.ranks.processes import environment, free_port

JAX = Path(__file__).with_name("jax_process.py")
TENSORFLOW = Path(__file__).with_name("tensorflow_worker.py")
ROWS = 192

pytestmark = pytest.mark.long


def run_jax(folder, count, devices, **job):
    """Start `count` processes of JAX with `devices` CPU devices each.

    Return the records that they write.
    """
    flags = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"}
    return run_processes(JAX, folder, count, flags, rows=ROWS, port=free_port(), **job)


def run_processes(script, folder, count, variables, **job):
    folder.mkdir()
    shared = {"count": count, **job}
    jobs = [shared | {"rank": rank, "out": str(folder / f"{rank}.json")} for rank in range(count)]
    started = [
        subprocess.Popen(
            [sys.executable, str(script), json.dumps(each)],
            env=environment() | variables,
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
    first, second = run_jax(tmp_path / "two", 2, 4, batch_rows=16)
    assert first["batches"] == second["batches"]
    assert sorted(rows_of(first)) == list(range(ROWS))
    assert [len(batch["rows"]) for batch in first["batches"]] == [32] * 6
    assert first["batches"][0]["parts"] == [[4]] * 4
    assert "the global batch has the rows of 2 processes" in first["explain"]
    for record in (first, second):
        assert "all 2 processes the same rows" in record["errors"][0]
        assert "device= expects shard" in record["errors"][1]


def test_one_process_with_eight_devices_resumes_an_epoch_of_two_processes(tmp_path):
    """With `check_placements`, the process also compares arrays of many shardings with those of `jax.device_put`."""
    two = run_jax(tmp_path / "two", 2, 4, batch_rows=16, steps=2)
    assert two[0]["state"] == two[1]["state"]
    (one,) = run_jax(tmp_path / "one", 1, 8, batch_rows=32, state=two[0]["state"], check_placements=True)
    assert sorted(rows_of(two[0]) + rows_of(one)) == list(range(ROWS))
    assert one["batches"][0]["parts"] == [[4]] * 8
    assert one["wrong"] == []


def test_two_workers_of_tensorflow_feed_one_global_batch(tmp_path):
    ports = [free_port(), free_port()]
    records = run_processes(TENSORFLOW, tmp_path / "two", 2, {}, workers=ports)
    assert records[0]["sums"] == records[1]["sums"]
    assert sum(records[0]["sums"]) == sum(range(64))
    assert all("the rows of 2 processes" in record["explain"] for record in records)
    assert [f"Use shard({rank}, 2)" in record["error"] for rank, record in enumerate(records)] == [True, True]
