"""A training run on a cluster, as far as feeding it goes. Values only; nothing here computes.

Bytes a second that are infinite mean that this part never holds anything up: it is left out.
"""

import math
from dataclasses import dataclass, field, fields
from typing import Any

from forebay.errors import ScenarioError
from forebay.pipeline.planner import AHEAD
from forebay.transforms.workers.ray_cluster import TASKS_A_WORKER

__all__ = ["Data", "Host", "Maps", "Remote", "Scenario", "Store", "Training"]

SOURCES = ("memory", "disk", "store")
PLACES = ("nowhere", "host", "remote")


@dataclass(frozen=True, slots=True)
class Data:
    """The rows: as they are stored, and as they cross to the device."""

    rows: int
    row_nbytes: int
    fed_row_nbytes: int = 0  # after the map; 0: as they are stored
    source: str = "memory"  # of the host that trains, its disk, or an object store
    cached_share: float = 0.0  # of the rows of a store: they lie on the host's disk already

    def __post_init__(self) -> None:
        _check(self, above_zero=("rows", "row_nbytes"))
        _check_word("data.source", self.source, SOURCES)
        if not 0 <= self.cached_share <= 1:
            raise ScenarioError(f"data.cached_share is {self.cached_share}: give a share, from 0 to 1.")

    @property
    def crossing_nbytes(self) -> int:
        """Of a row, on its way to the device."""
        return self.fed_row_nbytes or self.row_nbytes


@dataclass(frozen=True, slots=True)
class Training:
    """A step: every GPU computes on a batch of its own, then all wait for each other."""

    batch_rows: int  # of one GPU
    compute_seconds: float
    compute_jitter: float = 0.0  # standard deviation of a GPU's step, as a share of it
    all_reduce_seconds: float = 0.0  # what of it is not hidden behind computing
    prefetch: int = 0  # batches being made or ready, beside the one in use; 0: as a feed plans it

    def __post_init__(self) -> None:
        _check(self, above_zero=("batch_rows",))


@dataclass(frozen=True, slots=True)
class Maps:
    """What is done to rows on CPUs."""

    where: str = "nowhere"
    seconds_per_row: float = 0.0
    seconds_per_batch: float = 0.0  # beside its rows: the trip to a worker and back, of the worker's time
    jitter: float = 0.0  # standard deviation of a batch's time, as a share of it

    def __post_init__(self) -> None:
        _check(self)
        _check_word("maps.where", self.where, PLACES)


@dataclass(frozen=True, slots=True)
class Host:
    """One machine that trains."""

    gpus: int = 1
    workers: int = 1  # batches mapped at the same time
    link_bytes_per_second: float = math.inf  # of one GPU
    link_seconds: float = 0.0  # until a batch begins to cross
    gpus_per_switch: int = 1
    switch_bytes_per_second: float = math.inf  # what GPUs behind one switch or socket get together
    memory_bytes_per_second: float = math.inf  # reads and writes together
    disk_bytes_per_second: float = math.inf
    network_bytes_per_second: float = math.inf  # each way
    taking_seconds: float = 0.0  # of the training loop, to get a batch that is ready

    def __post_init__(self) -> None:
        _check(self, above_zero=("gpus", "workers", "gpus_per_switch", *_speeds(self)))
        if self.gpus % self.gpus_per_switch:
            raise ScenarioError(
                f"host.gpus is {self.gpus}, host.gpus_per_switch {self.gpus_per_switch}: give a divisor of {self.gpus}."
            )


@dataclass(frozen=True, slots=True)
class Store:
    """An object store that all read from."""

    bytes_per_second: float = math.inf  # to all of them together
    connections: int = 16  # of one host (or remote node)
    connection_bytes_per_second: float = math.inf
    request_nbytes: int = 8 << 20
    latency_seconds: float = 0.0  # until the first byte of a request comes
    jitter: float = 0.0  # standard deviation of the slowest request of a batch, as a share of the latency
    ahead_nbytes: int = 256 << 20  # read for one GPU before there is a slot for it

    def __post_init__(self) -> None:
        _check(self, above_zero=("connections", "request_nbytes", *_speeds(self)))

    @property
    def reader_bytes_per_second(self) -> float:
        """What one host gets by all its connections, each of which waits for a request before it makes the next."""
        request_seconds = self.latency_seconds + self.request_nbytes / self.connection_bytes_per_second
        return self.connections * self.request_nbytes / request_seconds if request_seconds else math.inf


@dataclass(frozen=True, slots=True)
class Remote:
    """Machines that map for those that train, as Ray nodes do."""

    nodes: int = 1
    workers: int = 1  # of one node
    network_bytes_per_second: float = math.inf  # of one node, each way
    in_flight: int = 0  # batches of one GPU that are out at a time; 0: as a feed plans it, two a worker
    seconds_per_batch: float = 0.0  # of the trainer's process, to send a batch away and take it back

    def __post_init__(self) -> None:
        _check(self, above_zero=("nodes", "workers", *_speeds(self)))


@dataclass(frozen=True, slots=True)
class Scenario:
    """All of it, on so many hosts."""

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
            raise ScenarioError(f"hosts is {self.hosts}: give 1 or more.")

    @property
    def gpus(self) -> int:
        return self.hosts * self.host.gpus

    @property
    def slots(self) -> int:
        """Batches of a GPU being made or ready: as many as can be made at a time and a few more, unless it is said."""
        if self.training.prefetch:
            return self.training.prefetch
        making = {"nowhere": 1, "host": -(-self.host.workers // self.host.gpus), "remote": self.in_flight}
        return making[self.maps.where] + AHEAD

    @property
    def in_flight(self) -> int:
        """Batches of a GPU that are out on remote workers at a time."""
        return self.remote.in_flight or -(-TASKS_A_WORKER * self.remote.nodes * self.remote.workers // self.gpus)

    @property
    def ahead(self) -> int:
        """Batches of a GPU that are read from a store before they have slots; remote nodes read what is in flight."""
        if self.data.source != "store" or self.maps.where == "remote":
            return 0
        return self.store.ahead_nbytes // self.stored_batch_nbytes

    @property
    def stored_batch_nbytes(self) -> int:
        return self.training.batch_rows * self.data.row_nbytes

    @property
    def crossing_batch_nbytes(self) -> int:
        return self.training.batch_rows * self.data.crossing_nbytes


def _speeds(part: Any) -> tuple[str, ...]:
    return tuple(known.name for known in fields(part) if known.name.endswith("bytes_per_second"))


def _check(part: Any, above_zero: tuple[str, ...] = ()) -> None:
    """Numbers that make sense; infinity only where it means that nothing is held up."""
    for known in fields(part):
        value, name = getattr(part, known.name), f"{type(part).__name__.lower()}.{known.name}"
        if isinstance(value, str):
            continue
        if math.isnan(value) or value < 0 or (value == math.inf and known.name not in _speeds(part)):
            raise ScenarioError(f"{name} is {value}: give a number that is not negative.")
        if value == 0 and known.name in above_zero:
            raise ScenarioError(f"{name} is 0: give more than that; what plays no part is left out.")


def _check_word(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ScenarioError(f"{name} is {value!r}: choose one of {', '.join(known)}.")
