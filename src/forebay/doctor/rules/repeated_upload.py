"""The same data uploaded repeatedly, although one upload before the loop is enough."""

import re
from collections import Counter
from collections.abc import Iterator

from forebay.core.spec import format_nbytes
from forebay.doctor.analyse.capture_view import CallSite, CaptureView
from forebay.doctor.analyse.costs import cost_of
from forebay.doctor.analyse.framework import array_framework, framework_of, is_on_device, is_python_data
from forebay.doctor.model.events import EventKind, LedgerEvent
from forebay.doctor.predict.cure_changes import remove_uploads
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.precedence import sites_for
from forebay.doctor.rules.wording import SESSION, calls_per_step, frequency, nbytes_per_call, source_text

__all__ = ["examine", "recognises"]

FEWEST = 3  # uploads of the same data; fewer may be chance
SMALLEST_NBYTES = 1 << 10  # smaller uploads are single numbers
LEAST_SHARE = 0.5  # of the calls on the line must repeat data
SURE_SHARE = 0.9  # of the time of the calls; the cure saves at least this share
LOOKUP_SHARE = 0.95  # of that gain remains if the script looks the data up in every step
PAGEABLE_BYTES_PER_SECOND = 8e9  # no link copies pageable memory faster; any longer time may be a wait


def recognises(view: CaptureView, site: CallSite) -> bool:
    again = len(_repeats(site))
    return again >= LEAST_SHARE * len(site.events) and again > 0 and nbytes_per_call(site) >= SMALLEST_NBYTES


def examine(view: CaptureView) -> Iterator[Finding]:
    for site in sites_for(view, "repeated_upload"):
        yield _finding(view, site, cost_of(view, _repeats(site)))


def _repeats(site: CallSite) -> list[LedgerEvent]:
    """Return the uploads of data that was uploaded before."""
    keys = Counter(key for key in site.values("key") if key)
    seen: set[object] = set()
    found = []
    for event in site.events:
        key = (event.api, (event.detail or {}).get("key"))
        if key in seen and keys[key[1]] >= FEWEST:
            found.append(event)
        seen.add(key)
    return found


def _finding(view: CaptureView, site: CallSite, cost: float) -> Finding:
    distinct, alternating = _count_distinct(site), ""
    what = f"the same {format_nbytes(nbytes_per_call(site))}"
    if distinct > max(1.0, calls_per_step(site)):
        alternating = f", alternating between {distinct} arrays"
    return Finding(
        rule="repeated_upload",
        title=f"{site.api} uploads {what} {frequency(site)}{alternating}",
        line=site.line,
        seconds=cost,
        cures=tuple(_cures(view, site, cost)),
        evidence=(
            f"{len(_repeats(site))} of {len(site.events)} uploads repeated data that had been uploaded before.",
            f"The script uploads {format_nbytes(site.nbytes)} per step, from {distinct} distinct arrays.",
        ),
    )


def _count_distinct(site: CallSite) -> int:
    return len({key for key in site.values("key") if key})


def _cures(view: CaptureView, site: CallSite, cost: float) -> Iterator[Cure]:
    basis = "the measured time of the removed uploads; the first upload remains"
    low = _least_gain(view, site, cost)
    changes = remove_uploads(view, site, len(_repeats(site)) / len(site.events))
    yield Cure("convert it before the loop", _before(view, site), low, cost, basis, changes)
    if is_python_data(site) or site.api == SESSION:
        return  # upload_once needs arrays, and a session takes no tensors
    yield Cure(
        "use upload_once in the loop",
        _once(view, site),
        low * LOOKUP_SHARE,
        cost,
        f"{basis}; the lookup takes some microseconds",
        changes,
    )


def _once(view: CaptureView, site: CallSite) -> str:
    """Return code with the names of the line, if the line is only a conversion."""
    found = _CONVERSION.fullmatch(source_text(site.line, ""))
    name, array = found.groups() if found else ("x", "array")
    return f'import forebay as fb\n{name} = fb.upload_once({array}, to="{array_framework(view, site.api)}")'


def _before(view: CaptureView, site: CallSite) -> str:
    """Return code to convert before the loop. A line that does more than convert stays in the loop."""
    once = "   # once, before the loop"
    if site.api == SESSION:
        return 'x = tf.compat.v1.get_variable("x", initializer=array)   # replaces the placeholder'
    converts = site.api.rpartition(".")[2] in _CONVERSIONS
    call = site.api if converts else _CONVERT.get(array_framework(view, site.api), site.api)
    if _count_distinct(site) > 1:
        return f"converted = [{call}(array) for array in arrays]{once}"
    return (
        f"{source_text(site.line, f'x = {call}(array)')}{once}"
        if converts
        else f"x = {call}(array){once}; the loop passes x"
    )


def _least_gain(view: CaptureView, site: CallSite, cost: float) -> float:
    """Return the least gain. PyTorch copies may include a wait for the device, which the cure keeps."""
    is_idle = any(wait.in_loop for wait in view.sites_of(EventKind.DOWNLOAD, EventKind.SYNC))
    if is_idle or not is_on_device(site) or framework_of(view, site.api) != "torch":
        return cost * SURE_SHARE
    return min(cost * SURE_SHARE, site.nbytes / PAGEABLE_BYTES_PER_SECOND)


_CONVERSION = re.compile(r"(\w+) = [\w.]+\((\w+)(?:, [^()]*)?\)")
_CONVERT = {"tensorflow": "tf.constant", "jax": "jax.device_put", "torch": "torch.as_tensor", "cupy": "cupy.asarray"}
_CONVERSIONS = frozenset(
    {"array", "as_tensor", "asarray", "constant", "convert_to_tensor", "cuda", "device_put", "from_numpy"}
    | {"identity", "set", "tensor", "to"}
)
