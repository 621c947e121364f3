"""Scenarios for the tests of the simulation, and a server simulated event by event."""

import heapq
import re
from dataclasses import replace

from hypothesis import strategies
from tests.support.paths import ROOT

from forebay.measure.simulate.scenario import Data, Host, Maps, Remote, Scenario, Store, Training

SPEEDS = strategies.floats(1e8, 1e11)


def scenario(*, hosts=1, source="memory", training=None, maps=None, **host):
    """Make a scenario with batches of 100 rows of 10,000 bytes: one million bytes."""
    return Scenario(
        Data(rows=1_000_000, row_nbytes=10_000, source=source),
        training or Training(batch_rows=100, compute_seconds=0.01),
        maps or Maps(),
        Host(**host),
        hosts=hosts,
    )


@strategies.composite
def even_scenarios(draw):
    """Draw scenarios without randomness."""
    host = Host(
        gpus=draw(strategies.sampled_from([1, 2, 4])),
        workers=draw(strategies.integers(1, 6)),
        link_bytes_per_second=draw(SPEEDS),
        switch_bytes_per_second=draw(SPEEDS),
        memory_bytes_per_second=draw(SPEEDS),
        disk_bytes_per_second=draw(SPEEDS),
        network_bytes_per_second=draw(SPEEDS),
    )
    store = Store(
        bytes_per_second=draw(SPEEDS),
        connection_bytes_per_second=draw(SPEEDS),
        latency_seconds=draw(strategies.floats(0, 0.1)),
    )
    made = scenario(
        hosts=draw(strategies.integers(1, 3)),
        source=draw(strategies.sampled_from(["memory", "disk", "store"])),
        training=Training(100, draw(strategies.floats(0, 0.1)), prefetch=draw(strategies.integers(1, 8))),
        maps=Maps(draw(strategies.sampled_from(["nowhere", "host", "remote"])), draw(strategies.floats(0, 1e-3))),
    )
    return replace(
        made, host=host, store=store, remote=Remote(nodes=2, workers=2, network_bytes_per_second=draw(SPEEDS))
    )


def event_by_event(arrivals, services, servers):
    """Return when each batch ends, with queues of waiting batches and of batches in service."""
    arriving = sorted((arrival, number) for number, arrival in enumerate(arrivals))
    waiting, serving, done, now = [], [], {}, 0.0
    while arriving or waiting or serving:
        while waiting and len(serving) < servers:
            number = waiting.pop(0)
            heapq.heappush(serving, (now + services[number], number))
        if arriving and (not serving or arriving[0][0] <= serving[0][0]):
            now, number = arriving.pop(0)
            waiting.append(number)
        elif serving:
            now, number = heapq.heappop(serving)
            done[number] = now
    return [done[number] for number in range(len(arrivals))]


def documented_shares():
    """Return the one-host rows of docs/scale.md: scenario, changes, percentage of busy GPU time."""
    text = (ROOT / "docs" / "scale.md").read_text()
    rows = re.findall(r"^\| `(\w+)((?: --set [\w.=]+)*)` \|[^|]+\| (\d+) % \|", text, re.MULTILINE)
    return [(name, changes.split()[1::2], int(share)) for name, changes, share in rows]
