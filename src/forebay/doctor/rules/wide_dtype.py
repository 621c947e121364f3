"""The rule for uploads in a wider dtype than needed, such as NumPy's default float64."""

from collections.abc import Iterator

from forebay.core.spec import format_nbytes
from forebay.doctor.analyse.capture_view import CallSite, CaptureView
from forebay.doctor.analyse.costs import cost_of
from forebay.doctor.analyse.framework import MIN_PIECES, dtype_bits, feed_framework, is_python_data, pieces_per_call
from forebay.doctor.predict.upload_cure_changes import narrow_and_prefetch, narrow_dtype
from forebay.doctor.rules.edits import join_code
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.fitted_code import fit_line
from forebay.doctor.rules.loop_edits import change_arrays
from forebay.doctor.rules.precedence import RuleView
from forebay.doctor.rules.wording import feed_code, frequency, nbytes_per_call

__all__ = ["CONVERT_ONCE", "examine", "recognises"]

CONVERT_ONCE = "convert the array once"  # title of the cure that `verify` can emulate
MIN_NBYTES = 64 << 10  # bytes per call; labels and step numbers are smaller and do not matter
DOUBLE = ("float", 64)  # float64 as `dtype_bits` returns it: kind and bits


def recognises(view: CaptureView, site: CallSite) -> bool:
    """Whether a call site uploads large arrays in a wider dtype than needed."""
    is_large = site.in_loop and nbytes_per_call(site) >= MIN_NBYTES and not is_python_data(site)
    is_large = is_large and pieces_per_call(site) < MIN_PIECES  # joining arrays costs more than their wide dtype
    return is_large and _present_and_sufficient_bits(site) is not None


def examine(view: RuleView) -> Iterator[Finding]:
    """Yield one finding per call site of this rule."""
    for site in view.sites_for("wide_dtype"):
        before, after = _present_and_sufficient_bits(site) or (64, 32)
        cost = cost_of(view, site.events)
        excess = cost * (1 - after / before)
        result = "stays in 64 bits" if _arrives_wide(site) else f"arrives in {after} bits"
        amount = format_nbytes(nbytes_per_call(site))
        yield Finding(
            rule="wide_dtype",
            title=f"{site.api} uploads {amount} in {before} bits {frequency(site)}, which {result}",
            line=site.line,
            seconds=excess,
            cures=_cures(view, site, cost, excess, after),
            evidence=(f"The device receives {', '.join(sorted({str(kind) for kind in site.values('dtype')}))}.",),
        )


def _cures(view: CaptureView, site: CallSite, cost: float, excess: float, bits: int) -> tuple[Cure, ...]:
    """Return the cures for numbers that need only `bits` bits.

    `cost` is that of all bytes, and `excess` that of the unneeded bytes, in seconds per step.
    """
    narrow_code = f'x = x.astype("float{bits}")   # once, before the loop'
    if (dtype_bits(next(iter(site.values("dtype")), "")) or DOUBLE)[0] in ("int", "uint"):
        narrow_code = narrow_code.replace("float", "int")
    narrow_code, fed_code = _narrow_codes(view, site, narrow_code)
    not_counted = "; the cost of computing in 64 bits is not included" if _arrives_wide(site) else ""
    share = 1 - excess / cost if cost else 1.0
    return (
        Cure(
            CONVERT_ONCE,
            narrow_code,
            f"the loop uploads fewer bytes{not_counted}",
            narrow_dtype(view, site, share),
        ),
        Cure(
            "let a feed prefetch the converted array",
            fed_code,
            f"the feed uploads fewer bytes, during the rest of the step{not_counted}",
            narrow_and_prefetch(view, site, share),
        ),
    )


def _narrow_codes(view: CaptureView, site: CallSite, code: str) -> tuple[str, str]:
    """Return code that converts the array once, and code that also feeds it.

    The conversion is an edit of the script if possible, else `code`, an example for an array `x`.
    """
    dtype = "int32" if '"int' in code else "float32"
    torch_change = f"{{}}.to(torch.{dtype})"
    feed = feed_code(view, feed_framework(view, site.api), site)
    change = code.partition("   #")[0].removeprefix("x = ").replace("x", "{}", 1)
    fitted = fit_line(view, site.line, lambda script, number: change_arrays(script, number, change, torch_change))
    return (fitted, join_code(fitted, feed)) if fitted else (code, f"{code}\n{feed}")


def _present_and_sufficient_bits(site: CallSite) -> tuple[int, int] | None:
    """Return the present and the sufficient bits per number; None if all are needed.

    For float64, 32 bits are enough. For other dtypes, the bits of the tensor are enough.
    """
    for event in site.events:
        detail = event.detail or {}
        before, after = dtype_bits(detail.get("from_dtype")), dtype_bits(detail.get("dtype"))
        if before and after and before[1] > after[1]:
            return before[1], after[1]
        if DOUBLE in (before, after):
            return 64, 32
    return None


def _arrives_wide(site: CallSite) -> bool:
    """Whether data arrives on the device as float64."""
    return any(dtype_bits(dtype) == DOUBLE for dtype in site.values("dtype"))
