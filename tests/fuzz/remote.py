"""Cases of a faulty store: the rows of the listed version, or an error.

Requests run in several threads, so the order in which they meet the faults differs from run to run. The faults, the
objects and the change of version depend only on the seed.
"""

import traceback
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from tests.fuzz.faulty_server import FAULTS, VERSION_STYLES, FaultyServer, ServerPlan
from tests.fuzz.sample import array_rows, npy_bytes
from tests.fuzz.verdict import Kind, Verdict

from forebay.errors import ForebayError

__all__ = ["FORMAT", "make_plan", "run_case"]

FORMAT = "http"
OBJECTS = 3
MAX_REQUESTS = 40  # later requests have no fault
ATTEMPTS = 3
TIMEOUT_SECONDS = 0.7  # the default is 30 s


def make_plan(seed: int, index: int) -> ServerPlan:
    """Return the plan of the server of a case."""
    rng = Random(f"{seed} {FORMAT} {index}")
    suffix = rng.choice((".npy", ".npy", ".csv"))
    share = rng.choice((0.0, 0.1, 0.3, 0.8))
    kinds = rng.sample(FAULTS, rng.randint(1, 3))
    faults = {number: rng.choice(kinds) for number in range(1, MAX_REQUESTS) if rng.random() < share}
    style = rng.choice(VERSION_STYLES)
    # Without a version, Forebay cannot detect a change.
    change_after = rng.randint(1, 12) if style != "none" and rng.random() < 0.5 else 10**9
    objects = {
        f"/{number}{suffix}": (_content(suffix, number, is_new=False), _content(suffix, number, is_new=True))
        for number in range(OBJECTS)
    }
    return ServerPlan(objects, style, faults, change_after, f"{seed} {index}", rng.random() < 0.5)


def _rows(number: int, *, is_new: bool) -> Any:
    rows = array_rows() + 100 * number
    return -rows if is_new else rows


def _content(suffix: str, number: int, *, is_new: bool) -> bytes:
    rows = _rows(number, is_new=is_new)
    if suffix == ".npy":
        return npy_bytes(rows)
    return "\n".join(",".join(map(str, row)) for row in rows.tolist()).encode()


def run_case(seed: int, index: int, folder: Path) -> Verdict:
    """Read all objects of a faulty server once, and compare the rows."""
    plan = make_plan(seed, index)
    try:
        with FaultyServer(plan) as server:
            rows = _read(server, plan, folder)
    except ForebayError as error:
        return Verdict(Kind.REFUSED, f"{type(error).__name__}: {error}")
    except BaseException as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return Verdict(Kind.UNTYPED, f"{type(error).__name__} at {Path(place.filename).name}:{place.lineno}: {error}")
    listed = [server.listed.get(path, False) for path in plan.objects]
    expected = np.concatenate([_rows(number, is_new=is_new) for number, is_new in enumerate(listed)])
    if np.array_equal(rows, expected):
        return Verdict(Kind.SAME)
    kinds = sorted(set(plan.faults.values()))
    changed = "a change of version, " if plan.change_after < 10**9 else ""
    return Verdict(Kind.WRONG, f"wrong rows with {plan.version_style}: {changed}faults {kinds}")


def _read(server: FaultyServer, plan: ServerPlan, folder: Path) -> Any:
    import aiohttp

    import forebay as fb

    urls = [server.url + path for path in plan.objects]
    options: dict[str, Any] = {} if urls[0].endswith(".npy") else {"cache": str(folder / "cache")}
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=TIMEOUT_SECONDS, sock_read=TIMEOUT_SECONDS)
    options["storage_options"] = {"client_kwargs": {"timeout": timeout}}
    pipeline = fb.from_files(urls, attempts=ATTEMPTS, connections=4, **options)
    with pipeline.batch(16).feed("numpy") as feed:
        return np.concatenate([np.array(batch) for batch in feed])
