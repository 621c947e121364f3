"""The choice of an emulation for the cure of a finding, and of its line."""

from forebay.doctor.analyse.capture_view import CallSite, CaptureView
from forebay.doctor.analyse.costs import cost_of
from forebay.doctor.model.emulation import Emulation, EmulationKind
from forebay.doctor.model.events import EventKind
from forebay.doctor.rules.finding import Finding
from forebay.doctor.rules.precedence import sites_for
from forebay.doctor.rules.wording import calls_per_step

__all__ = ["READ_EVERY", "choose_emulation"]

READ_EVERY = 100  # calls; a loop that ends when a value is read must still end

_KINDS: dict[tuple[str, EventKind], EmulationKind] = {
    ("input_bound", EventKind.INPUT): EmulationKind.RESIDENT,
    ("loader", EventKind.INPUT): EmulationKind.RESIDENT,
    ("loader", EventKind.UPLOAD): EmulationKind.LOCK,
    ("pageable_upload", EventKind.UPLOAD): EmulationKind.LOCK,
    ("repeated_upload", EventKind.UPLOAD): EmulationKind.REMEMBER,
    ("fits_on_device", EventKind.UPLOAD): EmulationKind.REUSE,
    ("conversion_in_loop", EventKind.UPLOAD): EmulationKind.REUSE,
    ("many_small_copies", EventKind.UPLOAD): EmulationKind.REUSE,
    ("wide_dtype", EventKind.UPLOAD): EmulationKind.NARROW,
    ("read_back", EventKind.DOWNLOAD): EmulationKind.DEFER,
    ("host_check", EventKind.DOWNLOAD): EmulationKind.DEFER,
    ("sync", EventKind.SYNC): EmulationKind.SKIP,
}
_LINE_KINDS = {"copy_not_overlapped": EmulationKind.PREFETCH}  # the finding is about device work, not about an event
_COMPILING = "compiled code may behave differently"
_NO_EMULATION = {
    "eager": _COMPILING,
    "launch_bound": _COMPILING,
    "tiny_ops": _COMPILING,
    "made_in_loop": "the doctor cannot leave out the Python code of the loop",
    "small_batch": "a larger batch changes the training",
}


def choose_emulation(view: CaptureView, finding: Finding) -> Emulation | str:
    """Return the emulation of a finding's cure, or why there is none."""
    if finding.rule in _LINE_KINDS and finding.line:
        return Emulation(_LINE_KINDS[finding.rule], finding.line.file, finding.line.number)
    site = _site_of(view, finding)
    kind = _KINDS.get((finding.rule, site.kind)) if site else None
    if site is None or kind is None:
        return _NO_EMULATION.get(finding.rule, "it changes the code or the settings of the script")
    if site.line is None:
        return "no line of the script makes the call"
    return Emulation(kind, site.line.file, site.line.number, _every(finding, site, kind))


def _site_of(view: CaptureView, finding: Finding) -> CallSite | None:
    """Return the call site to emulate. For a loader, that is where the loop waits, not where it is built."""
    sites = sites_for(view, finding.rule)
    same = [site for site in sites if site.line == finding.line] or sites
    return min(same, key=lambda site: abs(cost_of(view, site.events) - finding.seconds), default=None)


def _every(finding: Finding, site: CallSite, kind: EmulationKind) -> int:
    if kind in (EmulationKind.DEFER, EmulationKind.SKIP):
        return READ_EVERY
    # Many small copies become one call per step.
    return round(calls_per_step(site)) if finding.rule == "many_small_copies" else 0
