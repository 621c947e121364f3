"""The process a contender runs in: set up, then one sample for every request, until nobody asks any more.

Everything is said over a pipe, so a framework may print what it likes.
"""

import json
import os
import sys
import traceback
from multiprocessing.connection import Connection
from typing import Any

from forebay.measure.bench.contenders import load_contender
from forebay.measure.bench.meters import Gauge, Pace, load_meter
from forebay.measure.bench.model import Skip, Work

__all__ = ["main"]


def main(descriptor: int) -> None:
    with Connection(descriptor) as connection:
        gauge: Gauge | None = None
        while (request := _receive(connection)) is not None:
            try:
                if gauge is None:
                    gauge = _open(request)
                answer = _answer(gauge, request["do"])
            except Skip as reason:
                answer = {"skipped": str(reason)}
            except Exception as error:  # whatever a peer raises is its result
                traceback.print_exc()
                answer = {"failed": f"{type(error).__name__}: {error}"}
            connection.send_bytes(json.dumps(answer).encode())


def _receive(connection: Connection) -> dict[str, Any] | None:
    try:
        request: dict[str, Any] = json.loads(connection.recv_bytes())
    except EOFError:
        return None
    return request


def _open(request: dict[str, Any]) -> Gauge:
    work = dict(request["work"], shape=tuple(request["work"]["shape"]))
    _settle(work["options"])
    contender = load_contender(request["module"])
    return load_meter(request["meter"]).prepare(contender, Work(**work), Pace(**request["pace"]))


def _settle(options: dict[str, Any]) -> None:
    """What must hold before a framework is imported and threads are started."""
    os.environ.update(options.get("environment", {}))
    if "backend" in options:
        os.environ["KERAS_BACKEND"] = options["backend"]
    if "cpus" in options:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options["cpus"]])


def _answer(gauge: Gauge, verb: str) -> dict[str, Any]:
    if verb == "sample":
        return {"sample": gauge.sample()}
    if verb == "warm_up":
        gauge.warm_up()
    return {"consumer": gauge.consumer}


if __name__ == "__main__":
    main(int(sys.argv[1]))
