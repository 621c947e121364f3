"""Reaches the Ray cluster: the one this program uses already, the one RAY_ADDRESS names, or one on this machine."""

import logging
import os
import socket
from dataclasses import dataclass

import ray

from forebay.errors import ClusterError

__all__ = ["Free", "connect"]

REACH_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Free:
    """What a cluster has, and what of it nobody uses."""

    cpus: int
    free: int
    nodes: int


def connect() -> Free:
    """Join a cluster where this program has not yet; what there is to work with."""
    if not ray.is_initialized():
        _join(os.environ.get("RAY_ADDRESS", ""))
    nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
    cpus, free = ray.cluster_resources().get("CPU", 0), ray.available_resources().get("CPU", 0)
    return Free(int(cpus), int(free), len(nodes))


def _join(address: str) -> None:
    _check_reachable(address)
    try:
        ray.init(logging_level=logging.ERROR, log_to_driver=False)
    except (Exception, SystemExit) as error:  # the latter: Ray's own way out where a cluster does not answer
        where = f"the Ray cluster at {address}" if address else "a Ray cluster on this machine"
        raise ClusterError(
            f"could not join {where}: {str(error).strip() or type(error).__name__}. Join it yourself with ray.init() "
            "before feed(), or set RAY_ADDRESS."
        ) from error


def _check_reachable(address: str) -> None:
    """Knock before Ray does, which waits two minutes for a door that is not there."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        return  # nothing, "auto" or "local": Ray knows what they mean
    try:
        socket.create_connection((host.strip("[]"), int(port)), REACH_SECONDS).close()
    except OSError as error:
        raise ClusterError(
            f"no Ray cluster answers at RAY_ADDRESS={address}: {error}. Start it (ray start --head), correct the "
            "address, or unset RAY_ADDRESS to work on this machine."
        ) from error
