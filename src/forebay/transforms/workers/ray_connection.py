"""`connect`: joins the Ray cluster at RAY_ADDRESS, or a cluster on this machine."""

import logging
import os
import socket
from dataclasses import dataclass

import ray

from forebay.errors import ClusterError

__all__ = ["ClusterResources", "connect"]

CONNECT_SECONDS = 5.0  # seconds to wait for a TCP connection to RAY_ADDRESS


@dataclass(frozen=True, slots=True)
class ClusterResources:
    """The number of CPUs, free CPUs and nodes of a cluster."""

    cpus: int
    free_cpus: int
    nodes: int  # nodes that are alive and have CPUs


def connect() -> ClusterResources:
    """Join a cluster, unless this program has joined one, and return its resources."""
    if not ray.is_initialized():
        _join(os.environ.get("RAY_ADDRESS", ""))
    nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
    cpus, free_cpus = ray.cluster_resources().get("CPU", 0), ray.available_resources().get("CPU", 0)
    return ClusterResources(int(cpus), int(free_cpus), len(nodes))


def _join(address: str) -> None:
    _check_reachable(address)
    try:
        ray.init(logging_level=logging.ERROR, log_to_driver=False)
    except (Exception, SystemExit) as error:  # Ray raises SystemExit if a cluster does not answer
        where = f"the Ray cluster at {address}" if address else "a Ray cluster on this machine"
        raise ClusterError(
            f"could not join {where}: {str(error).strip() or type(error).__name__}. Call ray.init() yourself before "
            "feed(), or set RAY_ADDRESS to a running cluster."
        ) from error


def _check_reachable(address: str) -> None:
    """Raise ClusterError if no server answers at the address.

    Without this check, Ray would wait two minutes.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        return  # empty, "auto" or "local", which Ray resolves itself
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except OSError as error:
        raise ClusterError(
            f"no Ray cluster answers at RAY_ADDRESS={address}: {error}. Start it with `ray start --head`, correct the "
            "address, or unset RAY_ADDRESS to use this machine."
        ) from error
