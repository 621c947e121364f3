"""The route of a batch to a GPU: its servers and their time per batch.

Rows of an object store cross the network over several connections. The host reads cached rows from its disk. Maps run
on workers of the host or on remote nodes. Remote nodes read the store themselves. At the end of the route, a batch
passes host memory, the PCIe switch and the link.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from forebay.core.spec import Array
from forebay.measure.simulate.scenario import Scenario
from forebay.measure.simulate.server import Server

__all__ = ["Route", "RouteStage", "jitter_factors", "plan_route"]


@dataclass(frozen=True, slots=True)
class RouteStage:
    """A server, and how long it takes for one batch.

    Each channel of a server processes one batch at a time.
    """

    server: Server
    parameter: str  # field of the scenario that sets the capacity of the server, as "section.field"
    seconds: float  # mean time for which one batch occupies a channel of the server
    jitter: float = 0.0  # standard deviation of `seconds`, as a share of it
    latency_seconds: float = 0.0  # mean delay of a batch after it has left its channel
    latency_jitter: float = 0.0  # standard deviation of `latency_seconds`, as a share of it

    def serve(self, ready: Array, random: np.random.Generator) -> Array:
        """Return when each batch leaves the stage, from the times at which the batches arrive."""
        seconds = self.seconds * jitter_factors(random, self.jitter, len(ready))
        ends = self.server.serve(ready, seconds)
        if not self.latency_seconds:
            return ends
        return ends + self.latency_seconds * jitter_factors(random, self.latency_jitter, len(ready))


@dataclass(frozen=True, slots=True)
class Route:
    """Branches that read parts of a batch at the same time, then stages in sequence."""

    branches: tuple[tuple[RouteStage, ...], ...]
    sequence: tuple[RouteStage, ...]

    @property
    def stages(self) -> Iterator[RouteStage]:
        for branch in self.branches:
            yield from branch
        yield from self.sequence

    def pass_through(self, read_start: Array, slot_free_at: Array, random: np.random.Generator) -> Array:
        """Return the time at which the batch of each rank arrives.

        All branches start to read at `read_start`. The stages in sequence start when all branches have ended and the
        slot is free, which is at `slot_free_at`.
        """
        read_ends = [_pass_stages(branch, read_start, random) for branch in self.branches]
        return _pass_stages(self.sequence, np.maximum.reduce([slot_free_at, *read_ends]), random)


def jitter_factors(random: np.random.Generator, jitter: float, count: int) -> Array:
    """Draw log-normal factors with mean 1 and standard deviation `jitter`.

    As with real delays, a few factors are much larger than 1. Without jitter, all factors are 1.
    """
    if not jitter:
        return np.ones(count)
    sigma = math.sqrt(math.log1p(jitter**2))
    return random.lognormal(-(sigma**2) / 2, sigma, count)


def plan_route(scenario: Scenario) -> Route:
    """Return the route of a scenario.

    The route omits disks, links and networks that move no bytes, or that have an infinite speed and no latency.
    """
    branches = tuple(branch for branch in _read_branches(scenario) if branch)
    return Route(branches, tuple(_map_stages(scenario)) + tuple(_device_stages(scenario)))


def _read_branches(scenario: Scenario) -> Iterator[tuple[RouteStage, ...]]:
    data, host, nbytes = scenario.data, scenario.host, scenario.stored_batch_nbytes
    per_host = _stage_maker(scenario.hosts)
    disk_share = {"disk": 1.0, "store": data.cached_share, "memory": 0.0}[data.source]
    yield tuple(per_host("disk", "host.disk_bytes_per_second", host.disk_bytes_per_second, nbytes * disk_share))
    if data.source == "store":
        yield tuple(_store_stages(scenario, nbytes * (1 - disk_share)))


def _store_stages(scenario: Scenario, nbytes: float) -> Iterator[RouteStage]:
    # Only the stage "connections" adds the latency of the store. It is the last of these stages: before the network, a
    # batch with a late reply would delay the batches behind it in the network.
    store, remote, shared = scenario.store, scenario.remote, _stage_maker(1)
    yield from shared("store", "store.bytes_per_second", store.bytes_per_second, nbytes)
    if scenario.maps.where == "remote":
        parameter, rate = "remote.network_bytes_per_second", remote.nodes * remote.network_bytes_per_second
        readers, make_stage, name = remote.nodes, shared, "network into nodes"
    else:
        parameter, rate = "host.network_bytes_per_second", scenario.host.network_bytes_per_second
        readers, make_stage, name = 1, _stage_maker(scenario.hosts), "network into hosts"
    yield from make_stage(name, parameter, rate, nbytes)
    rate = readers * store.reader_bytes_per_second
    yield from make_stage("connections", "store.connections", rate, nbytes, store.latency_seconds, store.jitter)


def _map_stages(scenario: Scenario) -> Iterator[RouteStage]:
    if scenario.maps.where == "host":
        workers = Server("workers", scenario.hosts, scenario.host.workers)
        yield _worker_stage(scenario, workers, "host.workers")
    if scenario.maps.where == "remote":
        yield from _remote_stages(scenario)


def _remote_stages(scenario: Scenario) -> Iterator[RouteStage]:
    host, remote = scenario.host, scenario.remote
    shared, per_host = _stage_maker(1), _stage_maker(scenario.hosts)
    if remote.seconds_per_batch:
        trainer = Server("trainer's process", scenario.gpus)
        yield RouteStage(trainer, "remote.seconds_per_batch", remote.seconds_per_batch)
    mapped_nbytes, parameter = scenario.device_batch_nbytes, "remote.network_bytes_per_second"
    rate = remote.nodes * remote.network_bytes_per_second
    if scenario.data.source != "store":  # the host sends its rows to the nodes
        stored_nbytes = scenario.stored_batch_nbytes
        yield from per_host(
            "network out of hosts", "host.network_bytes_per_second", host.network_bytes_per_second, stored_nbytes
        )
        yield from shared("network into nodes", parameter, rate, stored_nbytes)
    workers = Server("remote workers", 1, remote.nodes * remote.workers)
    yield _worker_stage(scenario, workers, "remote.nodes")
    yield from shared("network out of nodes", parameter, rate, mapped_nbytes)
    yield from per_host(
        "network into hosts", "host.network_bytes_per_second", host.network_bytes_per_second, mapped_nbytes
    )


def _worker_stage(scenario: Scenario, workers: Server, parameter: str) -> RouteStage:
    maps = scenario.maps
    seconds = maps.seconds_per_batch + maps.seconds_per_row * scenario.training.batch_rows
    return RouteStage(workers, parameter, seconds, jitter=maps.jitter)


def _device_stages(scenario: Scenario) -> Iterator[RouteStage]:
    host, nbytes = scenario.host, scenario.device_batch_nbytes
    per_host, per_rank = _stage_maker(scenario.hosts), _stage_maker(scenario.gpus)
    memory_nbytes = _memory_traffic_nbytes(scenario)
    yield from per_host("memory", "host.memory_bytes_per_second", host.memory_bytes_per_second, memory_nbytes)
    per_switch = _stage_maker(scenario.gpus // host.gpus_per_switch)
    yield from per_switch("switch", "host.switch_bytes_per_second", host.switch_bytes_per_second, nbytes)
    yield from per_rank("link", "host.link_bytes_per_second", host.link_bytes_per_second, nbytes, host.link_seconds)


def _memory_traffic_nbytes(scenario: Scenario) -> int:
    """Return how many bytes of host memory are read and written for one batch.

    A GPU that pulls rows reads them once. Otherwise the host writes a batch on arrival, reads it and writes it into a
    slot, and the link reads the slot. If remote nodes map rows that the host stores, the host also reads these rows and
    writes a copy, which it sends to the nodes.
    """
    stored, device = scenario.stored_batch_nbytes, scenario.device_batch_nbytes
    if scenario.maps.where == "remote":
        return 4 * device if scenario.data.source == "store" else 2 * stored + 4 * device
    is_pulled = scenario.data.source == "memory" and scenario.maps.where == "nowhere"
    return device if is_pulled else 2 * stored + 2 * device


def _pass_stages(stages: tuple[RouteStage, ...], ready: Array, random: np.random.Generator) -> Array:
    for stage in stages:
        ready = stage.serve(ready, random)
    return ready


def _stage_maker(count: int) -> Callable[..., Iterator[RouteStage]]:
    """Return a generator function that makes a stage with `count` equal servers.

    One `Server` object stands for all of them, such as the disks of all hosts. The generator yields one stage. It
    yields no stage if no bytes move, or if the speed is infinite and there is no latency.
    """

    def make_stage(
        name: str, parameter: str, bytes_per_second: float, nbytes: float, latency: float = 0.0, jitter: float = 0.0
    ) -> Iterator[RouteStage]:
        if nbytes and (latency or bytes_per_second != math.inf):
            seconds = nbytes / bytes_per_second
            server = Server(name, count)
            yield RouteStage(server, parameter, seconds, latency_seconds=latency, latency_jitter=jitter)

    return make_stage
