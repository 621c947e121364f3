"""The choice of the emulation for a finding's cure, with its target line."""

from forebay.doctor.analyse.capture_view import CallSite
from forebay.doctor.analyse.costs import cost_of
from forebay.doctor.model.emulation import Emulation, EmulationKind, FeedRows
from forebay.doctor.model.events import EventKind
from forebay.doctor.rules import settings
from forebay.doctor.rules.edits import is_fitted
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.input_producers import STORED_ROWS_CURE, WORKERS_CURES, worker_count
from forebay.doctor.rules.precedence import RuleView
from forebay.doctor.rules.wording import calls_per_step

__all__ = ["READ_EVERY", "choose_emulation", "find_workers_cure"]

# An emulation replaces all but one of this many read-backs or waits. Some loops end when a value that they read back
# meets a condition. The call that runs as written lets such a loop end. A smaller number would leave more of the cost
# of these calls in the measured step. With a larger number, such a loop would run longer.
READ_EVERY = 100

# Rule and kind of the call site -> kind of the emulation.
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
# Rule -> kind of the emulation, for rules that examine device work: their findings have a line, but no call site.
_LINE_KINDS = {"copy_not_overlapped": EmulationKind.PREFETCH}
_COMPILED_MAY_DIFFER = "compiled code may behave differently from the script as written"
# Rule -> why the doctor cannot emulate its cures.
_REASONS_AGAINST_EMULATION = {
    "eager": _COMPILED_MAY_DIFFER,
    "launch_bound": _COMPILED_MAY_DIFFER,
    "tiny_ops": _COMPILED_MAY_DIFFER,
    "unused_gpu": "the script must move its model and its batches",
    "made_in_loop": "the doctor cannot leave out the Python code of the loop",
    "small_batch": "a larger batch changes the training",
}


def choose_emulation(view: RuleView, finding: Finding) -> Emulation | str:
    """Return the emulation of a finding's cure, or the reason why there is none."""
    if finding.rule == settings.RULE:
        return _choose_setting(view, finding)
    if finding.rule in _LINE_KINDS and finding.line:
        return Emulation(_LINE_KINDS[finding.rule], finding.line.file, finding.line.number)
    site = _find_site(view, finding)
    kind = _KINDS.get((finding.rule, site.kind)) if site else None
    if site is None or kind is None:
        reason = _REASONS_AGAINST_EMULATION.get(finding.rule, "it changes the code or the settings of the script")
        return _apply(view, finding) or reason
    if site.line is None:
        return "no line of the script makes the call"
    if kind is EmulationKind.RESIDENT and site.api == "DataLoader" and "torch" in view.frameworks:
        if rows := _feed_rows(finding.best_cure):
            return Emulation(EmulationKind.FEED, site.line.file, site.line.number, rows=rows)
        if find_workers_cure(finding):
            workers = worker_count(view, site, cost_of(view, site.events))
            return Emulation(EmulationKind.WORKERS, site.line.file, site.line.number, workers=workers)
    return Emulation(kind, site.line.file, site.line.number, _call_interval(finding, site, kind))


def _apply(view: RuleView, finding: Finding) -> Emulation | None:
    """Return the emulation that applies the code of a cure, if the code fits the script and the script is one file."""
    files = [each["file"] for each in (view.capture.facts.get("script") or {}).get("files", [])]
    anchor = view.line(view.steps.anchor[2]) if view.steps is not None else None
    if len(files) != 1 or anchor is None or anchor.file != files[0] or not is_fitted(finding.best_cure.code):
        return None
    return Emulation(EmulationKind.APPLIED, anchor.file, anchor.number, code=finding.best_cure.code)


def find_workers_cure(finding: Finding) -> Cure | None:
    """Return the cure of a finding that adds worker processes, or None."""
    return next((cure for cure in finding.cures if cure.title in WORKERS_CURES), None)


def _feed_rows(cure: Cure) -> str:
    """Return the value of FeedRows for the feed of a cure, or "".

    The result is "" if the cure has no feed that can replace a DataLoader.
    """
    if cure.title == STORED_ROWS_CURE:
        return FeedRows.ARRAYS
    calls = {"from_batches(": FeedRows.BATCHES, "from_source(": FeedRows.SOURCE}
    return next((rows for call, rows in calls.items() if call in cure.code), "")


def _choose_setting(view: RuleView, finding: Finding) -> Emulation | str:
    """Return the emulation that keeps a setting off, or the reason why there is none."""
    setting = settings.find_setting(view, finding)
    if setting in settings.NOT_EMULATED or setting == "tf.py_function":
        return "it changes the code of the script, or how it is started"
    file, number = (finding.line.file, finding.line.number) if finding.line else ("", 0)
    return Emulation(EmulationKind.OFF, file, number, setting=setting)


def _find_site(view: RuleView, finding: Finding) -> CallSite | None:
    """Return the call site of the finding's rule with the cost closest to the finding's.

    If possible, the site is on the line of the finding. The finding of a loader may name the line that builds the
    loader, although the loop waits on another line.
    """
    sites = view.sites_for(finding.rule)
    candidates = [site for site in sites if site.line == finding.line] or sites
    return min(candidates, key=lambda site: abs(cost_of(view, site.events) - finding.seconds), default=None)


def _call_interval(finding: Finding, site: CallSite, kind: EmulationKind) -> int:
    """Return the value for `Emulation.every`: one of this many calls runs as written.

    0 means that only the first call runs as written.
    """
    if kind in (EmulationKind.DEFER, EmulationKind.SKIP):
        return READ_EVERY
    # The cure of many small copies is one upload per step.
    return round(calls_per_step(site)) if finding.rule == "many_small_copies" else 0
