"""Large results pulled to the host every step, to be checked or measured there: all of it crosses to find out a bit."""

from collections.abc import Iterator

from forebay.core.spec import format_nbytes
from forebay.doctor.analyse.case import Case, Site
from forebay.doctor.analyse.costs import cost_of, rest_of
from forebay.doctor.analyse.device_view import DeviceView
from forebay.doctor.analyse.framework import feeds, runs_ahead
from forebay.doctor.analyse.intervals import Intervals
from forebay.doctor.model.formatting import seconds
from forebay.doctor.predict.cure_changes import ASSUMED, checked, spent_behind
from forebay.doctor.predict.simulate import RELIEF
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.precedence import charged
from forebay.doctor.rules.wording import each_nbytes, often

__all__ = ["LARGE_NBYTES", "examine", "recognises"]

LARGE_NBYTES = 1 << 20  # from here on it is data that comes back, not a number
FASTEST_BYTES_PER_SECOND = 60e9  # no link of sixteen lanes brings bytes back faster
HOW = "the copy back falls away, at least as fast as any link would do it; at most all of the wait"
HOW_RECORDED = (
    "the copy back falls away, but not the wait for what the device computes; at most all that is not its computing"
)


def recognises(case: Case, site: Site) -> bool:
    return site.in_loop and each_nbytes(site) >= LARGE_NBYTES and runs_ahead(case, site)


def examine(case: Case) -> Iterator[Finding]:
    for site in charged(case, "host_check"):
        cost = cost_of(case, site.events)
        amount = format_nbytes(each_nbytes(site))
        yield Finding(
            rule="host_check",
            title=f"{site.api} pulls {amount} back to the host {often(site)}",
            line=site.line,
            seconds=cost,
            cures=_cures(case, site, cost),
            evidence=(f"{site.nbytes / cost / 1e9:.1f} GB/s, the wait included" if cost else "no time was measured",),
        )


def _cures(case: Case, site: Site, cost: float) -> tuple[Cure, ...]:
    low, high, how = _bounds(case, site, cost)
    framework = feeds(case, site.api)
    reduce = _REDUCE.get(framework, _REDUCE["jax"])
    return (
        Cure(
            "reduce it on the device and bring the number back",
            reduce,
            low,
            high,
            how,
            checked(case, site, waits=True),
        ),
        Cure(
            "look for NaN and Inf where the data is, and learn of it later",
            "import forebay as fb\nreadback.put(fb.all_finite(result), tag=step)   # readback = fb.Readback()",
            low,
            high,
            how,
            checked(case, site, waits=False),
        ),
    )


def _bounds(case: Case, site: Site, cost: float) -> tuple[float, float, str]:
    """At least and at most what is won, and of what that is told. Where the device was recorded, it is known for how
    much of the pull it still computed, and what the host did next."""
    crossing = min(cost, site.nbytes / FASTEST_BYTES_PER_SECOND if case.has_gpu else 0.0)
    if case.device is None:
        return crossing, cost, HOW
    least, most = spent_behind(case, site)
    own = sum(case.step_parts.get(part, 0.0) for part in ("launching", "Python"))
    relieved = min(rest_of(case, cost + most), own) * (1 - RELIEF)  # once so much less goes through caches
    computing = case.device.working.length / 1e9 / len(case.device)
    high = max(crossing, min(cost + most + relieved, rest_of(case, computing)))
    low = min(high, max(crossing, cost - _waited(case, case.device, site)) + least)
    return low, high, f"{HOW_RECORDED}{ASSUMED}{_assumption(most)}" if most else HOW_RECORDED


def _waited(case: Case, view: DeviceView, site: Site) -> float:
    """Seconds of a step in which the device computed while these pulls lasted."""
    line = site.events[0].line
    pulls = [event for event in view.events if (event.kind, event.line) == (site.kind, line)]
    inside = Intervals([event.start for event in pulls], [event.end for event in pulls])
    return inside.within(view.working).length / 1e9 / len(view) * case.step_seconds / view.seconds


def _assumption(most: float) -> str:
    return f"what the host does behind it until its next call, {seconds(most)} a step, is the check and goes with it"


_REDUCE = {
    "tensorflow": "error = tf.reduce_mean(tf.abs(result - wanted))   # not np.mean(result.numpy())",
    "keras": "error = keras.ops.mean(keras.ops.abs(result - wanted))   # not np.mean(np.asarray(result))",
    "torch": "error = (result - wanted).abs().mean()   # not np.mean(result.cpu().numpy())",
    "jax": "error = jnp.abs(result - wanted).mean()   # not np.mean(np.asarray(result))",
    "cupy": "error = cupy.abs(result - wanted).mean()   # not np.mean(result.get())",
}
