"""Start each rank in its own process and collect the batches that it received."""

import json
import os
import random
import socket
import subprocess
import sys
from pathlib import Path

from tests.support.paths import ROOT

WORKER = Path(__file__).with_name("worker.py")
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
# Long timeouts, because Ray gives up on a slow start. The memory monitor is off, because it would kill workers.
PATIENT = {
    "RAY_worker_register_timeout_seconds": "300",
    "RAY_gcs_server_request_timeout_seconds": "300",
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "300",
    "RAY_memory_monitor_refresh_ms": "0",
}
ROWS, BATCH_ROWS = 103, 4
# Launcher -> the environment variables in which it reports the index of a rank and the number of ranks.
LAUNCHER_VARIABLES = {
    "torchrun": ("RANK", "WORLD_SIZE"),
    "mpirun": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    "mpiexec": ("PMI_RANK", "PMI_SIZE"),
    "srun": ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    "horovodrun": ("HOROVOD_RANK", "HOROVOD_SIZE"),
    "mpirun_rsh": ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    "jsrun": ("JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"),
}
RANK_VARIABLES = {*(name for names in LAUNCHER_VARIABLES.values() for name in names)}
RANK_VARIABLES |= {"TF_CONFIG", "SLURM_NTASKS", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "RAY_RAYLET_PID", "SLURM_JOB_NAME"}
RANK_VARIABLES |= {"SLURM_PTY_PORT"}


def run_ranks(framework, count, folder, **job):
    """Start `count` ranks, wait for all, and return their records in rank order."""
    addresses = {"port": free_port(), "workers": [free_port() for _ in range(count)], "store": str(folder / "store")}
    job = {"framework": framework, "count": count, "rows": ROWS, "batch_rows": BATCH_ROWS, **addresses, **job}
    started = [start_rank(job | {"rank": rank, "out": str(folder / f"{rank}.json")}) for rank in range(count)]
    try:
        outputs = [process.communicate(timeout=500)[0] for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == job.get("exits", [0] * count), "\n".join(outputs)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(count)]


def start_rank(job):
    command = [sys.executable, str(WORKER), json.dumps(job)]
    return subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, encoding="utf-8"
    )


def environment():
    """Return the environment of this process without the variables that report a rank."""
    inherited = {name: value for name, value in os.environ.items() if name not in RANK_VARIABLES}
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return inherited | QUIET | PATIENT | {"PYTHONPATH": paths}  # ranks import modules of the tests


def free_port():
    """Return a free port outside of the kernel's ephemeral range.

    So the kernel does not give the port to another process.
    """
    return next(port for port in iter(lambda: random.randrange(21_000, 32_000), None) if _is_free(port))


def _is_free(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def all_rows(ranks):
    return sorted(row for rank in ranks for batch in rank["batches"] for row in batch)


def step_counts(ranks):
    return {len(rank["batches"]) for rank in ranks}
