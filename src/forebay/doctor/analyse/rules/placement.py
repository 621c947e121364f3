"""An operation placed elsewhere than its neighbours: its inputs move there and its results back, every step."""

from collections.abc import Iterator

from forebay.doctor.analyse.accusers import charged
from forebay.doctor.analyse.case import Case, Site
from forebay.doctor.analyse.costs import cost_of
from forebay.doctor.analyse.finding import Cure, Finding
from forebay.doctor.analyse.framework import framework_of
from forebay.doctor.analyse.phrases import often
from forebay.spec import format_nbytes

__all__ = ["examine", "recognises"]


def recognises(case: Case, site: Site) -> bool:
    return site.in_loop


def examine(case: Case) -> Iterator[Finding]:
    for site in charged(case, "placement"):
        cost = cost_of(case, site.events)
        operation = _first(site, "op", site.api)
        source, target = _short(_first(site, "source", "one device")), _short(_first(site, "target", "another"))
        moved = f"{format_nbytes(site.nbytes)} from {source} to {target}"
        code = _CODE.get(framework_of(case, site.api), _CODE["torch"])
        how = "the moves as measured; the operation itself is not counted, and waits in the moves may stay"
        yield Finding(
            rule="placement",
            title=f"{operation} moves {moved} {often(site)}",
            line=site.line,
            seconds=cost,
            cures=(Cure("place it where its data is", code, 0.0, cost, how),),
            evidence=(f"{len(site.events)} moves in {site.steps} steps",),
        )


def _first(site: Site, name: str, otherwise: str) -> str:
    return str(next((value for value in site.values(name) if value), otherwise))


def _short(device: str) -> str:
    """`/job:localhost/replica:0/task:0/device:GPU:0` is GPU:0."""
    return device.rsplit("device:", 1)[-1]


_CODE = {
    "tensorflow": 'with tf.device("/GPU:0"): ...   # and tf.debugging.set_log_device_placement(True) says what has no '
    "kernel there: int32 and strings often not",
    "torch": "index = index.to(x.device)   # once, in front of the loop: everything of a step on one device",
    "jax": "table = jax.device_put(table, x.device)   # once, in front of the loop: jnp.from_dlpack leaves "
    "it on the host",
    "cupy": "with cupy.cuda.Device(0): ...   # everything of a step on one device",
}
