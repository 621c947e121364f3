"""The way of a batch: which stations it passes on its way to a GPU, and how long each takes for it. Pure.

What lies in a store comes over connections and the network; what is cached of it, from the disk beside. Maps run on
workers of the host, or on remote nodes, which then read the store themselves. Last come memory, switch and link.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from forebay.core.spec import Array
from forebay.measure.simulate.scenario import Scenario
from forebay.measure.simulate.server import Station

__all__ = ["Stage", "Way", "lay_out", "spread"]


@dataclass(frozen=True, slots=True)
class Stage:
    """A station, and what one batch asks of it."""

    station: Station
    knob: str  # the field of the scenario that makes the station wider
    seconds: float  # of a server, for a batch
    jitter: float = 0.0
    latency_seconds: float = 0.0  # on top; keeps no server busy
    latency_jitter: float = 0.0

    def serve(self, ready: Array, random: np.random.Generator) -> Array:
        seconds = self.seconds * spread(random, self.jitter, len(ready))
        done = self.station.serve(ready, seconds)
        if not self.latency_seconds:
            return done
        return done + self.latency_seconds * spread(random, self.latency_jitter, len(ready))


@dataclass(frozen=True, slots=True)
class Way:
    """Branches that are read side by side, then stages one after the other."""

    reading: tuple[tuple[Stage, ...], ...]
    rest: tuple[Stage, ...]

    @property
    def stages(self) -> Iterator[Stage]:
        for branch in self.reading:
            yield from branch
        yield from self.rest

    def pass_through(self, may_read: Array, may_go_on: Array, random: np.random.Generator) -> Array:
        """When batches arrive that could have been read from the one time on, and have had slots from the other on."""
        read = [_in_a_row(branch, may_read, random) for branch in self.reading]
        return _in_a_row(self.rest, np.maximum.reduce([may_go_on, *read]), random)


def spread(random: np.random.Generator, jitter: float, count: int) -> Array:
    """Factors around 1 with this standard deviation, skewed to the slow side as delays are: log-normal."""
    if not jitter:
        return np.ones(count)
    sigma = math.sqrt(math.log1p(jitter**2))
    return random.lognormal(-(sigma**2) / 2, sigma, count)


def lay_out(scenario: Scenario) -> Way:
    """The stations of a scenario; what is infinitely fast is left out."""
    reading = tuple(branch for branch in _branches(scenario) if branch)
    return Way(reading, tuple(_mapping(scenario)) + tuple(_crossing(scenario)))


def _branches(scenario: Scenario) -> Iterator[tuple[Stage, ...]]:
    data, host, nbytes = scenario.data, scenario.host, scenario.stored_batch_nbytes
    by_host = _piped(scenario.hosts)
    cached = {"disk": 1.0, "store": data.cached_share, "memory": 0.0}[data.source]
    yield tuple(by_host("disk", "host.disk_bytes_per_second", host.disk_bytes_per_second, nbytes * cached))
    if data.source == "store":
        yield tuple(_from_store(scenario, nbytes * (1 - cached)))


def _from_store(scenario: Scenario, nbytes: float) -> Iterator[Stage]:
    """Connections come last: an answer that is late holds up its own batch, not the network."""
    store, remote, by_all = scenario.store, scenario.remote, _piped(1)
    yield from by_all("store", "store.bytes_per_second", store.bytes_per_second, nbytes)
    if scenario.maps.where == "remote":
        knob, rate = "remote.network_bytes_per_second", remote.nodes * remote.network_bytes_per_second
        readers, piped, name = remote.nodes, by_all, "network into nodes"
    else:
        knob, rate = "host.network_bytes_per_second", scenario.host.network_bytes_per_second
        readers, piped, name = 1, _piped(scenario.hosts), "network into hosts"
    yield from piped(name, knob, rate, nbytes)
    rate = readers * store.reader_bytes_per_second
    yield from piped("connections", "store.connections", rate, nbytes, store.latency_seconds, store.jitter)


def _mapping(scenario: Scenario) -> Iterator[Stage]:
    if scenario.maps.where == "host":
        workers = Station("workers", scenario.hosts, scenario.host.workers)
        yield _mapped(scenario, workers, "host.workers")
    if scenario.maps.where == "remote":
        yield from _there_and_back(scenario)


def _there_and_back(scenario: Scenario) -> Iterator[Stage]:
    host, remote = scenario.host, scenario.remote
    by_all, by_host = _piped(1), _piped(scenario.hosts)
    if remote.seconds_per_batch:
        driver = Station("trainer's process", scenario.gpus)
        yield Stage(driver, "remote.seconds_per_batch", remote.seconds_per_batch)
    inward, knob = scenario.crossing_batch_nbytes, "remote.network_bytes_per_second"
    rate = remote.nodes * remote.network_bytes_per_second
    if scenario.data.source != "store":
        outward = scenario.stored_batch_nbytes
        yield from by_host(
            "network out of hosts", "host.network_bytes_per_second", host.network_bytes_per_second, outward
        )
        yield from by_all("network into nodes", knob, rate, outward)
    pool = Station("remote workers", 1, remote.nodes * remote.workers)
    yield _mapped(scenario, pool, "remote.nodes")
    yield from by_all("network out of nodes", knob, rate, inward)
    yield from by_host("network into hosts", "host.network_bytes_per_second", host.network_bytes_per_second, inward)


def _mapped(scenario: Scenario, pool: Station, knob: str) -> Stage:
    maps = scenario.maps
    seconds = maps.seconds_per_batch + maps.seconds_per_row * scenario.training.batch_rows
    return Stage(pool, knob, seconds, jitter=maps.jitter)


def _crossing(scenario: Scenario) -> Iterator[Stage]:
    host, nbytes = scenario.host, scenario.crossing_batch_nbytes
    by_host, by_rank = _piped(scenario.hosts), _piped(scenario.gpus)
    yield from by_host("memory", "host.memory_bytes_per_second", host.memory_bytes_per_second, _touched(scenario))
    switches = _piped(scenario.gpus // host.gpus_per_switch)
    yield from switches("switch", "host.switch_bytes_per_second", host.switch_bytes_per_second, nbytes)
    yield from by_rank("link", "host.link_bytes_per_second", host.link_bytes_per_second, nbytes, host.link_seconds)


def _touched(scenario: Scenario) -> int:
    """Bytes of the host's memory read and written for a batch: fetched by the GPU, once; else it is written as it
    arrives, read and written on its way into a slot, and read by the link."""
    stored, crossing = scenario.stored_batch_nbytes, scenario.crossing_batch_nbytes
    if scenario.maps.where == "remote":
        return 4 * crossing if scenario.data.source == "store" else 2 * stored + 4 * crossing
    fetched = scenario.data.source == "memory" and scenario.maps.where == "nowhere"
    return crossing if fetched else 2 * stored + 2 * crossing


def _in_a_row(stages: tuple[Stage, ...], ready: Array, random: np.random.Generator) -> Array:
    for stage in stages:
        ready = stage.serve(ready, random)
    return ready


def _piped(groups: int) -> Callable[..., Iterator[Stage]]:
    """Makes stages of so many like stations that move bytes; none where nothing moves or nothing is held up."""

    def stages(
        name: str, knob: str, bytes_per_second: float, nbytes: float, latency: float = 0.0, jitter: float = 0.0
    ) -> Iterator[Stage]:
        if nbytes and (latency or bytes_per_second != math.inf):
            seconds = nbytes / bytes_per_second
            yield Stage(Station(name, groups), knob, seconds, latency_seconds=latency, latency_jitter=jitter)

    return stages
