"""Uploads in a wider dtype than needed, such as the float64 that NumPy creates by default."""

from collections.abc import Iterator

from forebay.core.spec import format_nbytes
from forebay.doctor.analyse.capture_view import CallSite, CaptureView
from forebay.doctor.analyse.costs import cost_of, gain_by_overlap
from forebay.doctor.analyse.framework import dtype_bits, feed_framework, is_python_data
from forebay.doctor.predict.cure_changes import narrow_and_prefetch, narrow_dtype
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.precedence import sites_for
from forebay.doctor.rules.wording import feed_code, frequency, nbytes_per_call

__all__ = ["examine", "recognises"]

SMALLEST_NBYTES = 64 << 10  # labels and step numbers are too small to matter
DOUBLE = ("float", 64)


def recognises(view: CaptureView, site: CallSite) -> bool:
    large = site.in_loop and nbytes_per_call(site) >= SMALLEST_NBYTES and not is_python_data(site)
    return large and _bits(site) is not None


def examine(view: CaptureView) -> Iterator[Finding]:
    for site in sites_for(view, "wide_dtype"):
        before, after = _bits(site) or (64, 32)
        cost = cost_of(view, site.events)
        too_much = cost * (1 - after / before)
        arrives = "stay 64-bit" if _arrives_wide(site) else f"arrive in {after} bits"
        amount = format_nbytes(nbytes_per_call(site))
        yield Finding(
            rule="wide_dtype",
            title=f"{site.api} uploads {amount} in {before} bits {frequency(site)}, which {arrives}",
            line=site.line,
            seconds=too_much,
            cures=_cures(view, site, cost, too_much, after),
            evidence=(f"{', '.join(sorted({str(kind) for kind in site.values('dtype')}))} arrives on the device.",),
        )


def _cures(view: CaptureView, site: CallSite, cost: float, too_much: float, bits: int) -> tuple[Cure, ...]:
    low, high = gain_by_overlap(view, cost - too_much)
    narrow = f'x = x.astype("float{bits}")   # once, before the loop'
    if (dtype_bits(next(iter(site.values("dtype")), "")) or DOUBLE)[0] in ("int", "uint"):
        narrow = narrow.replace("float", "int")
    not_counted = "; the cost of computing in 64 bits is not included" if _arrives_wide(site) else ""
    feed = f"{narrow}\n{feed_code(view, feed_framework(view, site.api))}"
    share = 1 - too_much / cost if cost else 1.0
    narrower = narrow_dtype(view, site, share)
    return (
        Cure(
            "convert the array once",
            narrow,
            0.0,
            too_much,
            f"the time for the bytes that are no longer uploaded{not_counted}",
            narrower,
        ),
        Cure(
            "convert it, and let a feed prefetch it",
            feed,
            low,
            min(cost, too_much + high),
            "the time for the bytes that are no longer uploaded; the other "
            f"bytes overlap the rest of the step{not_counted}",
            narrow_and_prefetch(view, site, share),
        ),
    )


def _bits(site: CallSite) -> tuple[int, int] | None:
    """Return the present and the sufficient width in bits; None if no upload is too wide."""
    for event in site.events:
        detail = event.detail or {}
        before, after = dtype_bits(detail.get("from_dtype")), dtype_bits(detail.get("dtype"))
        if before and after and before[1] > after[1]:
            return before[1], after[1]
        if DOUBLE in (before, after):
            return 64, 32
    return None


def _arrives_wide(site: CallSite) -> bool:
    return any(dtype_bits(kind) == DOUBLE for kind in site.values("dtype"))
