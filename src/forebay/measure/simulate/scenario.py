"""Scenarios: descriptions of a training run on a cluster and of its data.

A speed may be infinite. The simulation omits a part that has an infinite speed and no latency.
"""

import math
from dataclasses import dataclass, field, fields
from typing import Any

from forebay.errors import ScenarioError
from forebay.pipeline.planner import READY_GROUPS
from forebay.transforms.workers.ray_cluster import TASKS_PER_WORKER

__all__ = ["Data", "Host", "Maps", "Remote", "Scenario", "Store", "Training"]

SOURCES = ("memory", "disk", "store")
MAP_LOCATIONS = ("nowhere", "host", "remote")
MAX_GPUS = 200_000  # a simulation of this number of GPUs takes 2 GB of memory and 100 seconds


@dataclass(frozen=True, slots=True)
class Data:
    """The rows: their number, their size, and where they are stored."""

    rows: int
    row_nbytes: int  # bytes of a row in the source
    fed_row_nbytes: int = 0  # bytes of a row after the maps; 0 means the same as row_nbytes
    source: str = "memory"  # "memory" or "disk" of the training host, or "store": an object store
    cached_share: float = 0.0  # share of the rows of a store that the disk of the host has cached

    def __post_init__(self) -> None:
        _check("data", self, above_zero=("rows", "row_nbytes"))
        _check_choice("data.source", self.source, SOURCES)
        if not 0 <= self.cached_share <= 1:
            raise ScenarioError(f"data.cached_share is {self.cached_share}. Give a share from 0 to 1.")

    @property
    def device_row_nbytes(self) -> int:
        """The bytes of a row that are copied to the device."""
        return self.fed_row_nbytes or self.row_nbytes


@dataclass(frozen=True, slots=True)
class Training:
    """A training step: each GPU computes on its own batch, then waits for all GPUs."""

    batch_rows: int  # per GPU
    compute_seconds: float  # per step
    compute_jitter: float = 0.0  # standard deviation as a share of compute_seconds
    all_reduce_seconds: float = 0.0  # per step; only the part that does not overlap with compute
    prefetch: int = 0  # batches per GPU that are ready or in preparation; 0 means the number that a feed plans

    def __post_init__(self) -> None:
        _check("training", self, above_zero=("batch_rows",))


@dataclass(frozen=True, slots=True)
class Maps:
    """The maps that run on CPUs."""

    where: str = "nowhere"  # "nowhere": there is no map; "host": workers of the training host; "remote": other machines
    seconds_per_row: float = 0.0
    seconds_per_batch: float = 0.0  # worker time to receive and return a batch, in addition to seconds_per_row
    jitter: float = 0.0  # standard deviation of the worker time per batch, as a share of it

    def __post_init__(self) -> None:
        _check("maps", self)
        _check_choice("maps.where", self.where, MAP_LOCATIONS)


@dataclass(frozen=True, slots=True)
class Host:
    """One machine with GPUs that train."""

    gpus: int = 1
    workers: int = 1  # each maps one batch at a time
    link_bytes_per_second: float = math.inf  # per GPU
    link_seconds: float = 0.0  # latency of a copy to a GPU
    gpus_per_switch: int = 1
    switch_bytes_per_second: float = math.inf  # shared by the GPUs behind one switch or socket
    memory_bytes_per_second: float = math.inf  # reads and writes together
    disk_bytes_per_second: float = math.inf
    network_bytes_per_second: float = math.inf  # in each direction
    taking_seconds: float = 0.0  # time that the training loop needs to take a ready batch

    def __post_init__(self) -> None:
        _check("host", self, above_zero=("gpus", "workers", "gpus_per_switch", *_speed_names(self)))
        if self.gpus % self.gpus_per_switch:
            raise ScenarioError(
                f"host.gpus_per_switch is {self.gpus_per_switch}, but host.gpus is {self.gpus}. "
                f"Give a divisor of {self.gpus}."
            )


@dataclass(frozen=True, slots=True)
class Store:
    """An object store from which all hosts, or all remote nodes, read."""

    bytes_per_second: float = math.inf  # to all readers together
    connections: int = 16  # per host or remote node
    connection_bytes_per_second: float = math.inf
    request_nbytes: int = 8 << 20  # bytes that one request reads
    latency_seconds: float = 0.0  # from a request to the first byte of its reply
    jitter: float = 0.0  # standard deviation of the latency of a batch's slowest request, as a share of latency_seconds
    ahead_nbytes: int = 256 << 20  # bytes that a host prefetches for each GPU before a slot is free

    def __post_init__(self) -> None:
        _check("store", self, above_zero=("connections", "request_nbytes", *_speed_names(self)))

    @property
    def reader_bytes_per_second(self) -> float:
        """Bytes per second over all connections of one host or remote node.

        Each connection sends its next request when it has the whole reply to its previous request.
        """
        request_seconds = self.latency_seconds + self.request_nbytes / self.connection_bytes_per_second
        return self.connections * self.request_nbytes / request_seconds if request_seconds else math.inf


@dataclass(frozen=True, slots=True)
class Remote:
    """Machines that only run maps, for example Ray nodes."""

    nodes: int = 1
    workers: int = 1  # per node
    network_bytes_per_second: float = math.inf  # per node, in each direction
    # Batches per GPU that remote workers have at the same time. 0 means the number that a feed uses: `TASKS_PER_WORKER`
    # batches for each worker, divided among the GPUs.
    in_flight: int = 0
    seconds_per_batch: float = 0.0  # time that the training process needs to send a batch and receive the result

    def __post_init__(self) -> None:
        _check("remote", self, above_zero=("nodes", "workers", *_speed_names(self)))


@dataclass(frozen=True, slots=True)
class Scenario:
    """A training run on `hosts` equal hosts."""

    data: Data
    training: Training
    maps: Maps = field(default_factory=Maps)
    host: Host = field(default_factory=Host)
    store: Store = field(default_factory=Store)
    remote: Remote = field(default_factory=Remote)
    hosts: int = 1
    title: str = ""

    def __post_init__(self) -> None:
        if self.hosts < 1:
            raise ScenarioError(f"hosts is {self.hosts}. Give 1 or more.")
        if self.gpus > MAX_GPUS:
            raise ScenarioError(
                f"hosts is {self.hosts} and host.gpus is {self.host.gpus}, which makes {self.gpus} GPUs. Give at most "
                f"{MAX_GPUS}."
            )

    @property
    def gpus(self) -> int:
        return self.hosts * self.host.gpus

    @property
    def slots(self) -> int:
        """The number of batches per GPU that are ready or in preparation."""
        if self.training.prefetch:
            return self.training.prefetch
        in_preparation = {
            "nowhere": 1,
            "host": -(-self.host.workers // self.host.gpus),
            "remote": self.batches_in_flight,
        }
        return in_preparation[self.maps.where] + READY_GROUPS

    @property
    def batches_in_flight(self) -> int:
        """The number of batches per GPU that remote workers have at the same time."""
        return self.remote.in_flight or -(-TASKS_PER_WORKER * self.remote.nodes * self.remote.workers // self.gpus)

    @property
    def prefetched_batches(self) -> int:
        """The number of batches per GPU that a host reads before their slots are free."""
        # Remote nodes do not prefetch: they read only the batches that they map.
        if self.data.source != "store" or self.maps.where == "remote":
            return 0
        return self.store.ahead_nbytes // self.stored_batch_nbytes

    @property
    def stored_batch_nbytes(self) -> int:
        return self.training.batch_rows * self.data.row_nbytes

    @property
    def device_batch_nbytes(self) -> int:
        return self.training.batch_rows * self.data.device_row_nbytes


def _speed_names(section: Any) -> tuple[str, ...]:
    """Return the names of the fields that are speeds in bytes per second."""
    return tuple(item.name for item in fields(section) if item.name.endswith("bytes_per_second"))


def _check(section_name: str, section: Any, above_zero: tuple[str, ...] = ()) -> None:
    """Raise ScenarioError if a number of a section is not allowed.

    No number may be negative or NaN. Only speeds may be infinite. The fields in `above_zero` must not be 0.
    """
    for item in fields(section):
        value, name = getattr(section, item.name), f"{section_name}.{item.name}"
        if isinstance(value, str):
            continue
        if math.isnan(value) or value < 0 or (value == math.inf and item.name not in _speed_names(section)):
            raise ScenarioError(f"{name} is {value}. Give a finite number that is not negative.")
        if value == 0 and item.name in above_zero:
            raise ScenarioError(f"{name} is 0. Give a number above 0.")


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ScenarioError(f"{name} is {value!r}. Choose one of {', '.join(choices)}.")
