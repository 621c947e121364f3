"""The same data uploaded again and again: a conversion that belongs before the loop."""

import re
from collections import Counter
from collections.abc import Iterator

from forebay.core.spec import format_nbytes
from forebay.doctor.analyse.case import Case, Site
from forebay.doctor.analyse.costs import cost_of
from forebay.doctor.analyse.framework import framework_of, is_python, on_device, uploads_to
from forebay.doctor.model.events import Event, Kind
from forebay.doctor.predict.cure_changes import without_uploads
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.precedence import charged
from forebay.doctor.rules.wording import SESSION, calls, each_nbytes, often, told

__all__ = ["examine", "recognises"]

FEWEST = 3  # times the same data, or it may be chance
SMALLEST_NBYTES = 1 << 10  # a number or two is no data
LEAST_SHARE = 0.5  # of the calls, or the line mostly does something else
SURELY_WON = 0.9  # of what the calls take
LOOKED_UP = 0.95  # of that, where the data is looked up every step in place of being moved out of the loop
PAGEABLE_BYTES_PER_SECOND = 8e9  # no link takes ordinary memory faster: so much of a copy is not waiting


def recognises(case: Case, site: Site) -> bool:
    again = len(_again(site))
    return again >= LEAST_SHARE * len(site.events) and again > 0 and each_nbytes(site) >= SMALLEST_NBYTES


def examine(case: Case) -> Iterator[Finding]:
    for site in charged(case, "repeated_upload"):
        yield _finding(case, site, cost_of(case, _again(site)))


def _again(site: Site) -> list[Event]:
    """Uploads of what was uploaded before: all but the first of each."""
    keys = Counter(key for key in site.values("key") if key)
    seen: set[object] = set()
    found = []
    for event in site.events:
        key = (event.api, (event.detail or {}).get("key"))
        if key in seen and keys[key[1]] >= FEWEST:
            found.append(event)
        seen.add(key)
    return found


def _finding(case: Case, site: Site, cost: float) -> Finding:
    different, by_turns = _different(site), ""
    what = f"the same {format_nbytes(each_nbytes(site))}"
    if different > max(1.0, calls(site)):
        by_turns = f", {different} different ones by turns"
    return Finding(
        rule="repeated_upload",
        title=f"{site.api} uploads {what} {often(site)}{by_turns}",
        line=site.line,
        seconds=cost,
        cures=tuple(_cures(case, site, cost)),
        evidence=(
            f"{len(_again(site))} of {len(site.events)} uploads were of data that had been uploaded before",
            f"{format_nbytes(site.nbytes)} cross in a step, {different} different in all",
        ),
    )


def _different(site: Site) -> int:
    return len({key for key in site.values("key") if key})


def _cures(case: Case, site: Site, cost: float) -> Iterator[Cure]:
    how = "the uploads it removes, as measured; the first one stays"
    low = _surely_won(case, site, cost)
    changes = without_uploads(case, site, len(_again(site)) / len(site.events))
    yield Cure("convert it before the loop", _before(case, site), low, cost, how, changes)
    if is_python(site) or site.api == SESSION:
        return  # upload_once remembers arrays, and gives tensors that no graph takes
    yield Cure(
        "let the loop ask every step and upload once",
        _once(case, site),
        low * LOOKED_UP,
        cost,
        f"{how}; looking it up costs some microseconds",
        changes,
    )


def _once(case: Case, site: Site) -> str:
    """By the names that the line has, where it is a conversion and nothing else."""
    found = _CONVERSION.fullmatch(told(site.line, ""))
    name, array = found.groups() if found else ("x", "array")
    return f'import forebay as fb\n{name} = fb.upload_once({array}, to="{uploads_to(case, site.api)}")'


def _before(case: Case, site: Site) -> str:
    """The line itself where it asks for a conversion; where it calls something else, that must stay in the loop."""
    once = "   # in front of the loop, once"
    if site.api == SESSION:
        return 'x = tf.compat.v1.get_variable("x", initializer=array)   # in place of the placeholder'
    converts = site.api.rpartition(".")[2] in _CONVERSIONS
    call = site.api if converts else _CONVERT.get(uploads_to(case, site.api), site.api)
    if _different(site) > 1:
        return f"converted = [{call}(array) for array in arrays]{once}"
    return (
        f"{told(site.line, f'x = {call}(array)')}{once}" if converts else f"x = {call}(array){once}: the loop passes x"
    )


def _surely_won(case: Case, site: Site, cost: float) -> float:
    """PyTorch's copies queue up behind what the device has to do: unless it is idle by then, they wait for that too."""
    idle = any(wait.in_loop for wait in case.of(Kind.DOWNLOAD, Kind.SYNC))
    if idle or not on_device(site) or framework_of(case, site.api) != "torch":
        return cost * SURELY_WON
    return min(cost * SURELY_WON, site.nbytes / PAGEABLE_BYTES_PER_SECOND)


_CONVERSION = re.compile(r"(\w+) = [\w.]+\((\w+)(?:, [^()]*)?\)")
_CONVERT = {"tensorflow": "tf.constant", "jax": "jax.device_put", "torch": "torch.as_tensor", "cupy": "cupy.asarray"}
_CONVERSIONS = frozenset(
    {"array", "as_tensor", "asarray", "constant", "convert_to_tensor", "cuda", "device_put", "from_numpy"}
    | {"identity", "set", "tensor", "to"}
)
