"""The rule for data that the loop uploads repeatedly, although one upload is enough."""

import re
from collections import Counter
from collections.abc import Iterator

from forebay.core.spec import format_nbytes
from forebay.doctor.analyse.capture_view import CallSite, CaptureView
from forebay.doctor.analyse.costs import cost_of
from forebay.doctor.analyse.framework import array_framework, is_python_data
from forebay.doctor.model.events import LedgerEvent
from forebay.doctor.predict.upload_cure_changes import remove_uploads
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.fitted_code import fit_conversion
from forebay.doctor.rules.precedence import RuleView
from forebay.doctor.rules.wording import SESSION, calls_per_step, frequency, nbytes_per_call, source_text

__all__ = ["examine", "recognises"]

MIN_UPLOADS = 3  # uploads of equal data; fewer may be a coincidence
MIN_NBYTES = 1 << 10  # bytes per call; smaller uploads are single numbers
MIN_SHARE = 0.5  # share of the calls on the line that must repeat data


def recognises(view: CaptureView, site: CallSite) -> bool:
    """Whether MIN_SHARE of the uploads of a call site repeat data of at least MIN_NBYTES."""
    repeated = len(_repeated_uploads(site))
    return repeated >= MIN_SHARE * len(site.events) and repeated > 0 and nbytes_per_call(site) >= MIN_NBYTES


def examine(view: RuleView) -> Iterator[Finding]:
    """Yield one finding per call site of this rule."""
    for site in view.sites_for("repeated_upload"):
        yield _finding(view, site, cost_of(view, _repeated_uploads(site)))


def _repeated_uploads(site: CallSite) -> list[LedgerEvent]:
    """Return the uploads of data that the call site uploaded before.

    Data counts if the call site uploads it at least MIN_UPLOADS times.
    """
    counts = Counter(key for key in site.values("key") if key)
    seen: set[object] = set()
    repeated = []
    for event in site.events:
        key = (event.api, (event.detail or {}).get("key"))
        if key in seen and counts[key[1]] >= MIN_UPLOADS:
            repeated.append(event)
        seen.add(key)
    return repeated


def _finding(view: CaptureView, site: CallSite, cost: float) -> Finding:
    distinct, alternating = _count_distinct(site), ""
    amount = format_nbytes(nbytes_per_call(site))
    if distinct > max(1.0, calls_per_step(site)):
        alternating = f", alternating between {distinct} arrays"
    return Finding(
        rule="repeated_upload",
        title=f"{site.api} uploads the same {amount} {frequency(site)}{alternating}",
        line=site.line,
        seconds=cost,
        cures=tuple(_cures(view, site)),
        evidence=(
            f"{len(_repeated_uploads(site))} of {len(site.events)} uploads repeated "
            "data that had been uploaded before.",
            f"The script uploads {format_nbytes(site.nbytes)} per step, from {distinct} distinct arrays.",
        ),
    )


def _count_distinct(site: CallSite) -> int:
    """Return the number of distinct arrays that the call site uploads."""
    return len({key for key in site.values("key") if key})


def _cures(view: CaptureView, site: CallSite) -> Iterator[Cure]:
    basis = "the cure removes all uploads except the first"
    changes = remove_uploads(view, site, len(_repeated_uploads(site)) / len(site.events))
    yield Cure("convert it before the loop", _conversion_code(view, site), basis, changes)
    if is_python_data(site) or site.api == SESSION:
        return  # upload_once needs arrays, and a session accepts no tensors
    yield Cure(
        "use upload_once in the loop",
        _upload_once_code(view, site),
        f"{basis}; the lookup takes some microseconds",
        changes,
    )


def _upload_once_code(view: CaptureView, site: CallSite) -> str:
    """Return code that calls `upload_once` in the loop: an edit, else an example.

    The example uses the names of the line if the line only assigns a conversion.
    """
    if fitted := fit_conversion(view, site, in_loop=True):
        return fitted
    match = _CONVERSION.fullmatch(source_text(site.line, ""))
    name, array = match.groups() if match else ("x", "array")
    return f'import forebay as fb\n{name} = fb.upload_once({array}, to="{array_framework(view, site.api)}")'


def _conversion_code(view: CaptureView, site: CallSite) -> str:
    """Return code that converts the data once, before the loop: an edit, else an example.

    If the call of the line is a conversion, the example moves the line. Any other call stays in the loop and receives a
    tensor.
    """
    once = "   # once, before the loop"
    if site.api != SESSION and (fitted := fit_conversion(view, site)):
        return fitted
    if site.api == SESSION:
        return 'x = tf.compat.v1.get_variable("x", initializer=array)   # replaces the placeholder'
    is_conversion = site.api.rpartition(".")[2] in _CONVERSION_NAMES
    call = site.api if is_conversion else _CONVERSION_CALLS.get(array_framework(view, site.api), site.api)
    if _count_distinct(site) > 1:
        return f"converted = [{call}(array) for array in arrays]{once}"
    return (
        f"{source_text(site.line, f'x = {call}(array)')}{once}"
        if is_conversion
        else f"x = {call}(array){once}; the loop passes x"
    )


_CONVERSION = re.compile(r"(\w+) = [\w.]+\((\w+)(?:, [^()]*)?\)")  # such as x = torch.as_tensor(array)
_CONVERSION_CALLS = {
    "tensorflow": "tf.constant",
    "jax": "jax.device_put",
    "torch": "torch.as_tensor",
    "cupy": "cupy.asarray",
}
_CONVERSION_NAMES = frozenset(
    {"array", "as_tensor", "asarray", "constant", "convert_to_tensor", "cuda", "device_put", "from_numpy"}
    | {"identity", "set", "tensor", "to"}
)
