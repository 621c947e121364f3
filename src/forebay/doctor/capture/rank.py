"""Which of several processes of one run this is, as whoever started them says; none where it is alone."""

import json
import os
import sys
from contextlib import suppress

__all__ = ["rank_here"]

# Where a launcher writes the number of a process, and of how many.
_LAUNCHERS = (
    ("RANK", "WORLD_SIZE"),  # torchrun, DeepSpeed, Accelerate
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),  # MPICH, Intel MPI
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("LOCAL_RANK", "LOCAL_WORLD_SIZE"),
)


def rank_here() -> int | None:
    """Asked when the script has run: some frameworks are told only by the script."""
    for asked in (_jax, _from_launcher, _from_tensorflow):
        with suppress(Exception):  # half imported, another version, or words where numbers belong
            found = asked()
            if found is not None:
                return found
    return None


def _from_launcher() -> int | None:
    for rank, ranks in _LAUNCHERS:
        if rank in os.environ:
            lone = os.environ.get(ranks) == "1"  # a batch system numbers lone processes too
            return None if lone else int(os.environ[rank])
    return None


def _from_tensorflow() -> int | None:
    """The chief comes first, then workers by their number."""
    told = json.loads(os.environ.get("TF_CONFIG") or "{}")
    cluster, task = told.get("cluster", {}), told.get("task", {})
    before = len(cluster.get("chief", ())) if task["type"] == "worker" else 0
    several = sum(len(cluster.get(kind, ())) for kind in ("chief", "worker")) > 1
    return before + int(task["index"]) if several and task["type"] in ("chief", "worker") else None


def _jax() -> int | None:
    """Known once `jax.distributed.initialize` was called; asking starts no backend."""
    state = sys.modules["jax._src.distributed"].global_state
    several = state.client is not None and (state.num_processes or 1) > 1
    return int(state.process_id) if several else None
