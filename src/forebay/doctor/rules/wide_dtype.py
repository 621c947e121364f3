"""Numbers that cross wider than they are used: float64, as NumPy makes them, where float32 arrives or would do."""

from collections.abc import Iterator

from forebay.core.spec import format_nbytes
from forebay.doctor.analyse.case import Case, Site
from forebay.doctor.analyse.costs import cost_of, won_by_overlap
from forebay.doctor.analyse.framework import bits_of, feeds, is_python
from forebay.doctor.predict.cure_changes import narrowed, narrowed_ahead
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.precedence import charged
from forebay.doctor.rules.wording import each_nbytes, feed_code, often

__all__ = ["examine", "recognises"]

SMALLEST_NBYTES = 64 << 10  # labels and step numbers may be as wide as they like
DOUBLE = ("float", 64)


def recognises(case: Case, site: Site) -> bool:
    large = site.in_loop and each_nbytes(site) >= SMALLEST_NBYTES and not is_python(site)
    return large and _bits(site) is not None


def examine(case: Case) -> Iterator[Finding]:
    for site in charged(case, "wide_dtype"):
        before, after = _bits(site) or (64, 32)
        cost = cost_of(case, site.events)
        too_much = cost * (1 - after / before)
        arrives = "stays so" if _arrives_wide(site) else f"arrives in {after} bits"
        amount = format_nbytes(each_nbytes(site))
        yield Finding(
            rule="wide_dtype",
            title=f"{site.api} takes {amount} in {before} bits {often(site)}, which {arrives}",
            line=site.line,
            seconds=too_much,
            cures=_cures(case, site, cost, too_much, after),
            evidence=(f"{', '.join(sorted({str(kind) for kind in site.values('dtype')}))} arrives",),
        )


def _cures(case: Case, site: Site, cost: float, too_much: float, bits: int) -> tuple[Cure, ...]:
    low, high = won_by_overlap(case, cost - too_much)
    narrow = f'x = x.astype("float{bits}")   # once, in front of the loop'
    if (bits_of(next(iter(site.values("dtype")), "")) or DOUBLE)[0] in ("int", "uint"):
        narrow = narrow.replace("float", "int")
    not_counted = "; what computing in 64 bits costs is not counted" if _arrives_wide(site) else ""
    feed = f"{narrow}\n{feed_code(case, feeds(case, site.api))}"
    share = 1 - too_much / cost if cost else 1.0
    narrower = narrowed(case, site, share)
    return (
        Cure("narrow the array once", narrow, 0.0, too_much, f"the bytes that need not cross{not_counted}", narrower),
        Cure(
            "and let a feed send it ahead",
            feed,
            low,
            min(cost, too_much + high),
            f"the bytes that need not cross, and the others beside the rest of the step{not_counted}",
            narrowed_ahead(case, site, share),
        ),
    )


def _bits(site: Site) -> tuple[int, int] | None:
    """Width before and as it would do; None where nothing is wider than it need be."""
    for event in site.events:
        detail = event.detail or {}
        before, after = bits_of(detail.get("from_dtype")), bits_of(detail.get("dtype"))
        if before and after and before[1] > after[1]:
            return before[1], after[1]
        if DOUBLE in (before, after):
            return 64, 32
    return None


def _arrives_wide(site: Site) -> bool:
    return any(bits_of(kind) == DOUBLE for kind in site.values("dtype"))
