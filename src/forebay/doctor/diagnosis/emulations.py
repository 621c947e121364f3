"""Which emulation stands for the cure of a finding, and on which line; or why there is none. Pure."""

from forebay.doctor.analyse.case import Case, Site
from forebay.doctor.analyse.costs import cost_of
from forebay.doctor.model.emulation import Emulation, Way
from forebay.doctor.model.events import Kind
from forebay.doctor.rules.finding import Finding
from forebay.doctor.rules.precedence import charged
from forebay.doctor.rules.wording import calls

__all__ = ["NOW_AND_THEN", "emulation_of"]

NOW_AND_THEN = 100  # a value is read for good so often: a loop that ends by one must end

_WAYS: dict[tuple[str, Kind], Way] = {
    ("input_bound", Kind.INPUT): Way.RESIDENT,
    ("loader", Kind.INPUT): Way.RESIDENT,
    ("loader", Kind.UPLOAD): Way.LOCK,
    ("pageable_upload", Kind.UPLOAD): Way.LOCK,
    ("repeated_upload", Kind.UPLOAD): Way.REMEMBER,
    ("fits_on_device", Kind.UPLOAD): Way.REUSE,
    ("conversion_in_loop", Kind.UPLOAD): Way.REUSE,
    ("many_small_copies", Kind.UPLOAD): Way.REUSE,
    ("wide_dtype", Kind.UPLOAD): Way.NARROW,
    ("read_back", Kind.DOWNLOAD): Way.DEFER,
    ("host_check", Kind.DOWNLOAD): Way.DEFER,
    ("sync", Kind.SYNC): Way.SKIP,
}
_WAYS_OF_LINES = {"copy_not_overlapped": Way.AHEAD}  # what is charged for is the device's, not an event
_WHY_NOT = {
    "eager": "what is compiled may do something else than what is not",
    "launch_bound": "what is compiled may do something else than what is not",
    "tiny_ops": "what is compiled may do something else than what is not",
    "made_in_loop": "what the loop does in its own Python cannot be left out",
    "small_batch": "a larger batch is another training",
}


def emulation_of(case: Case, finding: Finding) -> Emulation | str:
    """What is to be done, or why nothing can be."""
    if finding.rule in _WAYS_OF_LINES and finding.line:
        return Emulation(_WAYS_OF_LINES[finding.rule], finding.line.file, finding.line.number)
    site = _site_of(case, finding)
    way = _WAYS.get((finding.rule, site.kind)) if site else None
    if site is None or way is None:
        return _WHY_NOT.get(finding.rule, "its cure is a change of the script's own code or settings")
    if site.line is None:
        return "no line of the script's does it"
    return Emulation(way, site.line.file, site.line.number, _every(finding, site, way))


def _site_of(case: Case, finding: Finding) -> Site | None:
    """What the finding accuses: a loader is accused where it was made, and emulated where the loop waits for it."""
    sites = charged(case, finding.rule)
    same = [site for site in sites if site.line == finding.line] or sites
    return min(same, key=lambda site: abs(cost_of(case, site.events) - finding.seconds), default=None)


def _every(finding: Finding, site: Site, way: Way) -> int:
    if way in (Way.DEFER, Way.SKIP):
        return NOW_AND_THEN
    return round(calls(site)) if finding.rule == "many_small_copies" else 0  # one in place of all those of a step
