"""The program of a contender process: it sets the contender up and takes samples.

Requests and replies use a pipe of their own, so that output of frameworks does not mix with replies. The program ends
when the runner closes the pipe.
"""

import json
import os
import sys
import traceback
from multiprocessing.connection import Connection
from typing import Any

from forebay.measure.bench.contenders import load_contender
from forebay.measure.bench.meters import RunSettings, Sampler, load_meter
from forebay.measure.bench.model import Skip, Workload

__all__ = ["main"]


def main(descriptor: int) -> None:
    """Reply to requests on the pipe with this file descriptor until the pipe is closed."""
    with Connection(descriptor) as connection:
        sampler: Sampler | None = None
        while (request := _receive(connection)) is not None:
            try:
                if sampler is None:
                    sampler = _set_up(request)
                reply = _reply(sampler, request["do"])
            except Skip as reason:
                reply = {"skipped": str(reason)}
            except Exception as error:  # the runner shows the exception as the result of this contender
                traceback.print_exc()
                reply = {"failed": f"{type(error).__name__}: {error}"}
            connection.send_bytes(json.dumps(reply).encode())


def _receive(connection: Connection) -> dict[str, Any] | None:
    """Return the next request, or None if the runner has closed the pipe."""
    try:
        request: dict[str, Any] = json.loads(connection.recv_bytes())
    except EOFError:
        return None
    return request


def _set_up(request: dict[str, Any]) -> Sampler:
    """Apply the process options, import contender and meter, and return the meter's sampler."""
    work = dict(request["work"], shape=tuple(request["work"]["shape"]))
    _apply_process_options(work["options"])
    contender = load_contender(request["contender"])
    prepare = load_meter(request["meter"])
    return prepare(contender, Workload(**work), RunSettings(**request["settings"]))


def _apply_process_options(options: dict[str, Any]) -> None:
    """Set environment variables and CPU affinity, before a framework is imported and starts threads."""
    os.environ.update(options.get("environment", {}))
    if "backend" in options:
        os.environ["KERAS_BACKEND"] = options["backend"]
    if "cpus" in options:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options["cpus"]])


def _reply(sampler: Sampler, action: str) -> dict[str, Any]:
    """Take a sample or warm up, and return the reply.

    The action "set_up" needs only the reply.
    """
    if action == "sample":
        return {"sample": sampler.sample()}
    if action == "warm_up":
        sampler.warm_up()
    return {"consumer": sampler.consumer}


if __name__ == "__main__":
    main(int(sys.argv[1]))
