"""The rule for large results that the loop reads back, often only to check them."""

from collections.abc import Iterator

from forebay.core.spec import format_nbytes
from forebay.doctor.analyse.capture_view import CallSite, CaptureView
from forebay.doctor.analyse.costs import cost_of, rest_of_step
from forebay.doctor.analyse.device_view import DeviceView
from forebay.doctor.analyse.framework import feed_framework, is_asynchronous
from forebay.doctor.analyse.intervals import Intervals
from forebay.doctor.model.formatting import format_seconds
from forebay.doctor.predict.cure_changes import ASSUMPTION, check_on_device, check_seconds
from forebay.doctor.predict.simulate import WARM_CACHE_FACTOR
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.precedence import sites_for
from forebay.doctor.rules.wording import frequency, nbytes_per_call

__all__ = ["LARGE_NBYTES", "examine", "recognises"]

LARGE_NBYTES = 1 << 20  # bytes per call; the rule does not report smaller read-backs
FASTEST_BYTES_PER_SECOND = 60e9  # no PCIe link of 16 lanes is faster
BASIS = "the copy to the host is removed: at least its time on the fastest link, at most the whole wait"
RECORDED_BASIS = (
    "the copy to the host is removed, but not the wait for the computation "
    "on the device; at most all time in which the device does not compute"
)


def recognises(view: CaptureView, site: CallSite) -> bool:
    """Whether the site reads back large results, in a framework that computes asynchronously."""
    return site.in_loop and nbytes_per_call(site) >= LARGE_NBYTES and is_asynchronous(view, site)


def examine(view: CaptureView) -> Iterator[Finding]:
    """Yield one finding per site."""
    for site in sites_for(view, "host_check"):
        cost = cost_of(view, site.events)
        amount = format_nbytes(nbytes_per_call(site))
        yield Finding(
            rule="host_check",
            title=f"{site.api} copies {amount} to the host {frequency(site)}",
            line=site.line,
            seconds=cost,
            cures=_cures(view, site, cost),
            evidence=(
                f"The copy runs at {site.nbytes / cost / 1e9:.1f} GB/s, including the wait."
                if cost
                else "The time of the copy was not measured.",
            ),
        )


def _cures(view: CaptureView, site: CallSite, cost: float) -> tuple[Cure, ...]:
    low, high, basis = _bounds(view, site, cost)
    framework = feed_framework(view, site.api)
    return (
        Cure(
            "reduce it on the device and read back one number",
            _REDUCE_CODE.get(framework, _REDUCE_CODE["jax"]),
            low,
            high,
            basis,
            check_on_device(view, site, waits=True),
        ),
        Cure(
            "check for NaN and Inf on the device, and read the result later",
            "import forebay as fb\nreadback.put(fb.all_finite(result), tag=step)   # readback = fb.Readback()",
            low,
            high,
            basis,
            check_on_device(view, site, waits=False),
        ),
    )


def _bounds(view: CaptureView, site: CallSite, cost: float) -> tuple[float, float, str]:
    """Return the least and the largest gain in seconds per step, and their basis.

    If the capture has a device record, the bounds also use how long the device computed during the copy, and how long
    the host worked after it.
    """
    copy_seconds = min(cost, site.nbytes / FASTEST_BYTES_PER_SECOND if view.has_gpu else 0.0)
    if view.device is None:
        return copy_seconds, cost, BASIS
    least, most = check_seconds(view, site)
    host_work = sum(view.step_parts.get(part, 0.0) for part in ("launching", "Python"))
    # The CPU caches stay warm if fewer bytes pass through them.
    cache_gain = min(rest_of_step(view, cost + most), host_work) * (1 - WARM_CACHE_FACTOR)
    computing = view.device.working.length / 1e9 / len(view.device)
    high = max(copy_seconds, min(cost + most + cache_gain, rest_of_step(view, computing)))
    low = min(high, max(copy_seconds, cost - _computing_seconds(view, view.device, site)) + least)
    return low, high, f"{RECORDED_BASIS}{ASSUMPTION}{_assumption(most)}" if most else RECORDED_BASIS


def _computing_seconds(view: CaptureView, device_view: DeviceView, site: CallSite) -> float:
    """Return the seconds per step of device computation during the read-backs of the site."""
    line = site.events[0].line
    read_backs = [event for event in device_view.events if (event.kind, event.line) == (site.kind, line)]
    waits = Intervals([event.start for event in read_backs], [event.end for event in read_backs])
    computed = waits.intersection(device_view.working).length / 1e9 / len(device_view)
    return computed * view.step_seconds / device_view.seconds


def _assumption(check: float) -> str:
    """Return the assumption that `check` seconds per step of host work are the check."""
    return (
        "the host work between this copy and the next call "
        f"({format_seconds(check)} per step) is the check and is removed with it"
    )


_REDUCE_CODE = {
    "tensorflow": "error = tf.reduce_mean(tf.abs(result - wanted))   # replaces np.abs(result.numpy() - wanted).mean()",
    "keras": "error = keras.ops.mean(keras.ops.abs(result - wanted))   # replaces NumPy code on np.asarray(result)",
    "torch": "error = (result - wanted).abs().mean()   # replaces np.abs(result.cpu().numpy() - wanted).mean()",
    "jax": "error = jnp.abs(result - wanted).mean()   # replaces np.abs(np.asarray(result) - wanted).mean()",
    "cupy": "error = cupy.abs(result - wanted).mean()   # replaces np.abs(result.get() - wanted).mean()",
}
