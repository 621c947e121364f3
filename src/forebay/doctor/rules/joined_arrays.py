"""The finding about calls that join a list of NumPy arrays, such as `jnp.stack(rows)`.

The rule `conversion_in_loop` reports it. A framework converts each array of the list, or even each number, on its own.
NumPy joins the arrays in one pass.
"""

from collections.abc import Iterator, Sequence
from functools import partial

from forebay.doctor.analyse.capture_view import CallSite, CaptureView
from forebay.doctor.analyse.costs import cost_of
from forebay.doctor.analyse.framework import feed_framework, pieces_per_call
from forebay.doctor.analyse.script_code import script_code
from forebay.doctor.model.formatting import format_seconds
from forebay.doctor.predict.changes import chain
from forebay.doctor.predict.outcomes import Changes
from forebay.doctor.predict.upload_cure_changes import join_with_numpy
from forebay.doctor.rules import join_edits
from forebay.doctor.rules.edits import join_code
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.fitted_code import fit_line
from forebay.doctor.rules.wording import frequency, location

__all__ = ["finding"]

_CODE = {
    "jax": "batch = jnp.asarray(np.stack(rows))   # one conversion instead of one per row",
    "tensorflow": "batch = tf.convert_to_tensor(np.stack(rows))   # one conversion instead of one per row",
    "keras": "batch = np.stack(rows)   # one array instead of a list",
    "torch": "batch = torch.from_numpy(np.stack(rows))   # one conversion instead of one per row",
}


def finding(view: CaptureView, sites: Sequence[CallSite]) -> Finding:
    """Return one finding about call sites that join NumPy arrays, most time first."""
    main, *others = sites
    fitted = [site for site in sites if _code(view, site, converts=True)]
    left = [location(view, site.line, site.api) for site in sites if fitted and site not in fitted]
    listed = [
        f"{location(view, each.line, each.api)} ({format_seconds(cost_of(view, each.events))})" for each in others
    ]
    return Finding(
        rule="conversion_in_loop",
        title=f"{main.api} converts {pieces_per_call(main):.0f} NumPy arrays one by one {frequency(main)}",
        line=main.line,
        seconds=cost_of(view, [event for site in sites for event in site.events]),
        cures=tuple(_cures(view, fitted or sites)),
        evidence=(
            f"{sum(len(site.events) for site in sites)} such calls happened in {main.steps} steps.",
            *([f"Other lines: {', '.join(listed)}."] if listed else []),
            *([f"The code and the gain do not include {', '.join(left)}. Change these lines too."] if left else []),
        ),
    )


def _cures(view: CaptureView, sites: Sequence[CallSite]) -> Iterator[Cure]:
    """Yield the cures: join the arrays with NumPy, then convert the results.

    If the script passes a result only to compiled functions, which accept NumPy arrays, the first cure does not convert
    this result.
    """
    is_passed_on = [_is_passed_on(view, site) for site in sites]
    if any(is_passed_on):
        code = [_code(view, site, converts=not passed) for site, passed in zip(sites, is_passed_on, strict=True)]
        basis = f"{_BASIS}, and a compiled function takes NumPy arrays"
        changes = _changes(view, sites, [not passed for passed in is_passed_on])
        yield Cure("join the arrays with NumPy", join_code(*code), basis, changes)
    text = join_code(*(_code(view, site, converts=True) for site in sites))
    text = text or _CODE.get(feed_framework(view, sites[0].api), _CODE["jax"])
    yield Cure(
        "join the arrays with NumPy, then convert once", text, _BASIS, _changes(view, sites, [True for _ in sites])
    )


def _code(view: CaptureView, site: CallSite, *, converts: bool) -> str:
    return fit_line(view, site.line, partial(join_edits.join_with_numpy, converts=converts))


def _is_passed_on(view: CaptureView, site: CallSite) -> bool:
    """Whether the script passes the result of a call site only to compiled functions."""
    code = script_code(view, site.line)
    is_jax = feed_framework(view, site.api) == "jax"
    return (
        is_jax and code is not None and site.line is not None and join_edits.is_only_passed_on(code, site.line.number)
    )


def _changes(view: CaptureView, sites: Sequence[CallSite], converts: Sequence[bool]) -> Changes:
    """Return the best and the worst outcome of joining with NumPy at all call sites.

    `converts` says for each call site whether the script then converts the result.
    """
    outcomes = [
        join_with_numpy(view, site, pieces_per_call(site), converts=each)
        for site, each in zip(sites, converts, strict=True)
    ]
    return tuple(chain(each) for each in zip(*outcomes, strict=True))


_BASIS = "NumPy joins the arrays in one pass, instead of a conversion of each of them"
