"""Scenarios for the tests of the simulator, and the same station written out event by event."""

import heapq
import re
from dataclasses import replace

from hypothesis import strategies
from tests.support.paths import ROOT

from forebay.measure.simulate.scenario import Data, Host, Maps, Remote, Scenario, Store, Training

SPEEDS = strategies.floats(1e8, 1e11)


def scenario(*, hosts=1, source="memory", training=None, maps=None, **host):
    """Batches of 100 rows of 10,000 bytes: a million bytes."""
    return Scenario(
        Data(rows=1_000_000, row_nbytes=10_000, source=source),
        training or Training(batch_rows=100, compute_seconds=0.01),
        maps or Maps(),
        Host(**host),
        hosts=hosts,
    )


@strategies.composite
def even_scenarios(draw):
    """Anything without chance in it."""
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
    """When each is done: those who wait are kept in a queue, those who are served in another, and time goes on."""
    coming = sorted((arrival, number) for number, arrival in enumerate(arrivals))
    waiting, serving, done, now = [], [], {}, 0.0
    while coming or waiting or serving:
        while waiting and len(serving) < servers:
            number = waiting.pop(0)
            heapq.heappush(serving, (now + services[number], number))
        if coming and (not serving or coming[0][0] <= serving[0][0]):
            now, number = coming.pop(0)
            waiting.append(number)
        elif serving:
            now, number = heapq.heappop(serving)
            done[number] = now
    return [done[number] for number in range(len(arrivals))]


def documented():
    """What docs/scale.md says of one host: a scenario, the changes made to it, the percentage that GPUs compute."""
    text = (ROOT / "docs" / "scale.md").read_text()
    rows = re.findall(r"^\| `(\w+)((?: --set [\w.=]+)*)` \|[^|]+\| (\d+) % \|", text, re.MULTILINE)
    return [(name, changes.split()[1::2], int(share)) for name, changes, share in rows]
