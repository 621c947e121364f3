"""The HTML report: one self-contained file, and a short card for notebooks.

The templates escape every text of the profiled script (names, source, errors). A content security policy allows only
the JavaScript whose checksum it contains.
"""

import base64
import hashlib
import json
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from forebay.core.spec import format_nbytes
from forebay.doctor.analyse.crossings import MAX_LISTED, crossings_of, split_crossings
from forebay.doctor.analyse.host_lines import run_lines
from forebay.doctor.analyse.memory import memory_usage
from forebay.doctor.analyse.phases import parts_of_step
from forebay.doctor.analyse.step_lines import step_lines
from forebay.doctor.diagnosis.diagnose import Diagnosis, run_factor
from forebay.doctor.model.formatting import (
    format_count,
    format_percent,
    format_rate,
    format_seconds,
    format_seconds_range,
    format_timestamp,
    predicted_step_seconds,
    truncate,
)
from forebay.doctor.report import missing_loop, sentences, side_notes
from forebay.doctor.report.colors import COLOR_LABELS, color_of_kind, color_of_part
from forebay.doctor.report.step_shares import merge_small_parts, shares_of
from forebay.doctor.report.timeline import timeline_data
from forebay.doctor.report.transfers import transfers_of
from forebay.doctor.rules.finding import Cure, Finding

__all__ = ["render_card", "render_page", "save_page"]

MAX_TRANSFERS = 300  # rows of the table; the JSON document lists all transfers
MAX_HOST_LINES = 50  # rows of the table; the JSON document lists all lines
MAX_FINDINGS = 40  # on the page; the JSON document lists all findings
MAX_CARD_CROSSINGS = 20  # rows of a card
MAX_CROSSING_TEXT_LENGTH = 100  # characters of a line; the table of crossings has up to 10,000 rows
MAX_TEXT_LENGTH = 400  # characters; longer texts of the profiled script are shortened, but not the code of cures
MIN_PART = 0.0005  # share of a step; smaller parts would read 0%, so the page shows only their sum

_ASSETS = Path(__file__).parent / "page"


def render_page(diagnosis: Diagnosis) -> str:
    """Return the whole report as HTML."""
    transfers, of_step = transfers_of(diagnosis.view), step_lines(diagnosis.view)
    lines = of_step.lines or run_lines(diagnosis.view)
    crossings, crossing_totals = split_crossings(crossings_of(diagnosis.view), MAX_LISTED)
    script = "\n".join(_read_asset(name) for name in ("page.js", "timeline.js"))
    return _TEMPLATES.get_template("report.html").render(
        _template_values(diagnosis),
        transfers=transfers[:MAX_TRANSFERS],
        more_transfers=max(0, len(transfers) - MAX_TRANSFERS),
        host_lines=lines[:MAX_HOST_LINES],
        other_seconds=of_step.other_seconds + sum(each.seconds for each in of_step.lines[MAX_HOST_LINES:]),
        unknown_seconds=of_step.unknown_seconds,
        more_host_lines=max(0, len(lines) - MAX_HOST_LINES),
        crossings=crossings,
        MAX_CROSSING_TEXT_LENGTH=MAX_CROSSING_TEXT_LENGTH,
        MAX_TRANSFERS=MAX_TRANSFERS,
        crossing_totals=crossing_totals,
        timeline=_to_script_json(timeline_data(diagnosis.view)),
        style=Markup(_read_asset("report.css")),  # nosec B704  # a file of this package
        script=Markup(script),  # nosec B704  # a file of this package
        script_checksum=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def save_page(diagnosis: Diagnosis, path: str | Path) -> None:
    """Write the page to a file."""
    # The page may show file names with characters that UTF-8 cannot encode.
    Path(path).write_text(render_page(diagnosis), encoding="utf-8", errors="replace")


def render_card(diagnosis: Diagnosis) -> str:
    """Return a short report for a notebook cell. It needs no JavaScript."""
    crossings = crossings_of(diagnosis.view) if diagnosis.view.steps is None else []
    return _TEMPLATES.get_template("card.html").render(
        _template_values(diagnosis),
        crossings=crossings[:MAX_CARD_CROSSINGS],
        more_crossings=max(0, len(crossings) - MAX_CARD_CROSSINGS),
        style=Markup(_read_asset("card.css")),  # nosec B704  # a file of this package
    )


@dataclass(frozen=True, slots=True)
class StepPart:
    """One part of a step, as the page draws it."""

    name: str
    color: str  # suffix of a CSS class
    seconds: float
    share: float  # of the step
    before: float  # sum of the shares of all parts before this one


@dataclass(frozen=True, slots=True)
class CureOutcome:
    """A cure, and how long a step takes without it and with it."""

    cure: Cure
    speedup: str
    present_step: float  # seconds; the mean step for rules about the whole run (`RUN_RULES`), else the median step
    step_time: str
    min_share: float  # shortest predicted step, as a share of the present step time
    max_share: float  # longest predicted step, as a share of the present step time


def _template_values(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return the values that both templates use."""
    view = diagnosis.view
    return {
        "diagnosis": diagnosis,
        "view": view,
        "capture": view.capture,
        "name": Path(view.capture.script).name or view.capture.script,
        "sentences": sentences,
        "missing_loop": missing_loop,
        "side_notes": side_notes,
        "memory": memory_usage(view),
        "parts": _make_step_parts(parts_of_step(view)),
        "findings": diagnosis.findings[:MAX_FINDINGS],
        "more_findings": max(0, len(diagnosis.findings) - MAX_FINDINGS),
        "outcomes": lambda finding: _cure_outcomes(diagnosis, finding),
        "colors": COLOR_LABELS,
        "best_outcome": next(iter(_cure_outcomes(diagnosis, diagnosis.main)), None) if diagnosis.main else None,
    }


def _make_step_parts(parts: dict[str, float]) -> list[StepPart]:
    """Return the parts of a step that are large enough to draw."""
    shown = merge_small_parts(parts, MIN_PART)
    shares = shares_of(shown)
    starts = accumulate(shares.values(), initial=0.0)
    return [
        StepPart(name, color_of_part(name), seconds, shares[name], start)
        for (name, seconds), start in zip(shown.items(), starts, strict=False)
        if seconds
    ]


def _cure_outcomes(diagnosis: Diagnosis, finding: Finding) -> list[CureOutcome]:
    """Return the outcomes of all cures of a finding, largest gain first."""
    return [_cure_outcome(diagnosis, cure, run_factor(diagnosis.view, finding)) for cure in finding.cures_by_gain]


def _cure_outcome(diagnosis: Diagnosis, cure: Cure, factor: float) -> CureOutcome:
    step = diagnosis.view.step_seconds * factor
    predicted = predicted_step_seconds(cure.low * factor, cure.high * factor, step)
    return CureOutcome(
        cure,
        sentences.format_cure_speedup(diagnosis, cure),
        step,
        format_seconds_range(*predicted),
        *(seconds / step if step else 1.0 for seconds in predicted),
    )


def _to_script_json(values: dict[str, Any]) -> Markup:
    """Encode values as JSON for a script element. Escaped brackets cannot end the element."""
    text = json.dumps(values, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))  # nosec B704  # escaped


def _read_asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def _shorten(text: object, length: int = MAX_TEXT_LENGTH) -> str:
    return truncate(str(text), length)


def _format_fact(value: object, name: str) -> str:
    """Format a fact about the machine or a framework."""
    if name.endswith("nbytes") and isinstance(value, int | float):
        return format_nbytes(value)
    return _shorten(value)


_TEMPLATES = Environment(
    loader=PackageLoader("forebay.doctor.report", "page"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.filters |= {
    "brief": _shorten,
    "counted": format_count,
    "fact": _format_fact,
    "nbytes": format_nbytes,
    "percent": format_percent,
    "seconds": format_seconds,
    "times": format_rate,
    "timestamp": format_timestamp,
    "color": color_of_kind,
}
