"""The rule for large results that the loop reads back, often only to check them."""

from collections.abc import Iterator

from forebay.core.spec import format_nbytes
from forebay.doctor.analyse.capture_view import CallSite, CaptureView
from forebay.doctor.analyse.costs import cost_of
from forebay.doctor.analyse.framework import feed_framework, is_asynchronous
from forebay.doctor.model.formatting import format_seconds
from forebay.doctor.predict.cure_changes import check_on_device, check_seconds
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.fitted_code import fit_line
from forebay.doctor.rules.precedence import RuleView
from forebay.doctor.rules.read_edits import check_on_device as reduce_on_device
from forebay.doctor.rules.wording import frequency, nbytes_per_call

__all__ = ["LARGE_NBYTES", "examine", "recognises"]

LARGE_NBYTES = 1 << 20  # bytes per call; the rule does not report smaller read-backs
BASIS = "the cure removes the copy to the host, but not the wait for the computation on the device"


def recognises(view: CaptureView, site: CallSite) -> bool:
    """Whether a call site reads back large results that a framework computes asynchronously."""
    return site.in_loop and nbytes_per_call(site) >= LARGE_NBYTES and is_asynchronous(view, site)


def examine(view: RuleView) -> Iterator[Finding]:
    """Yield one finding per call site of this rule."""
    for site in view.sites_for("host_check"):
        cost = cost_of(view, site.events)
        amount = format_nbytes(nbytes_per_call(site))
        yield Finding(
            rule="host_check",
            title=f"{site.api} copies {amount} to the host {frequency(site)}",
            line=site.line,
            seconds=cost,
            cures=_cures(view, site),
            evidence=(
                f"The copy runs at {site.nbytes / cost / 1e9:.1f} GB/s, including the wait."
                if cost
                else "The time of the copy was not measured.",
            ),
        )


def _cures(view: CaptureView, site: CallSite) -> tuple[Cure, ...]:
    basis = f"{BASIS}{_assumption(check_seconds(view, site)[1])}"
    framework = feed_framework(view, site.api)
    fitted = fit_line(view, site.line, lambda code, number: reduce_on_device(code, number, framework))
    return (
        Cure(
            "reduce it on the device and read back one number",
            fitted or _REDUCE_CODE.get(framework, _REDUCE_CODE["jax"]),
            basis,
            check_on_device(view, site, waits=True),
        ),
        Cure(
            "check for NaN and Inf on the device, and read the result later",
            "import forebay as fb\nreadback.put(fb.all_finite(result), tag=step)   # readback = fb.Readback()",
            basis,
            check_on_device(view, site, waits=False),
        ),
    )


def _assumption(check: float) -> str:
    """Return the assumption that the host checks results for `check` seconds per step.

    The text is empty if this time is 0.
    """
    if not check:
        return ""
    return (
        ". Assumption: the host work between this copy and the next call "
        f"({format_seconds(check)} per step) is the check and is removed with it"
    )


_REDUCE_CODE = {
    "tensorflow": "error = tf.reduce_mean(tf.abs(result - wanted))   # replaces np.abs(result.numpy() - wanted).mean()",
    "keras": "error = keras.ops.mean(keras.ops.abs(result - wanted))   # replaces NumPy code on np.asarray(result)",
    "torch": "error = (result - wanted).abs().mean()   # replaces np.abs(result.cpu().numpy() - wanted).mean()",
    "jax": "error = jnp.abs(result - wanted).mean()   # replaces np.abs(np.asarray(result) - wanted).mean()",
    "cupy": "error = cupy.abs(result - wanted).mean()   # replaces np.abs(result.get() - wanted).mean()",
}
