"""The verdict as a page: one file that needs no other, to be opened by anybody, anywhere, years later.

Whatever comes from the script (names, source, errors) is escaped by the template; and only the page's own code may
run in it, by a policy that names that code by its checksum.
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
from forebay.doctor.analyse.memory import memory_of
from forebay.doctor.diagnosis.diagnose import Verdict
from forebay.doctor.model.formatting import (
    at_most,
    counted,
    percent,
    predicted,
    seconds,
    seconds_between,
    times,
)
from forebay.doctor.report import sentences, side_notes
from forebay.doctor.report.colors import TONES, tone_of_kind, tone_of_part
from forebay.doctor.report.timeline import timeline_of
from forebay.doctor.report.transfers import crossings_of
from forebay.doctor.rules.finding import Cure, Finding

__all__ = ["card", "page", "save_page"]

MOST_CROSSINGS = 300  # rows of the table; the document has them all
MOST_FINDINGS = 40
LONGEST_TEXT = 400  # letters of anything that comes from the script
SMALLEST_PART = 0.0005

_ASSETS = Path(__file__).parent / "page"


def page(verdict: Verdict) -> str:
    """The whole report."""
    crossings = crossings_of(verdict.case)
    script = "\n".join(_asset(name) for name in ("page.js", "timeline.js"))
    return _TEMPLATES.get_template("report.html").render(
        _told(verdict),
        crossings=crossings[:MOST_CROSSINGS],
        more_crossings=max(0, len(crossings) - MOST_CROSSINGS),
        timeline=_json(timeline_of(verdict.case)),
        style=Markup(_asset("report.css")),
        script=Markup(script),
        script_checksum=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def save_page(verdict: Verdict, path: str | Path) -> None:
    """Write the page down."""
    Path(path).write_text(page(verdict), encoding="utf-8", errors="replace")  # names of files may be any bytes


def card(verdict: Verdict) -> str:
    """The report in short, for the cell of a notebook: no script, and colours that suit any background."""
    return _TEMPLATES.get_template("card.html").render(_told(verdict), style=Markup(_asset("card.css")))


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a step, and where in it it is drawn."""

    name: str
    tone: str
    seconds: float
    share: float
    before: float  # the share of all parts above it


@dataclass(frozen=True, slots=True)
class WhatIf:
    """A cure, and how much of a step's time is left with it."""

    cure: Cure
    gain: str
    takes: str
    least: float  # shares of the step as it is
    most: float


def _told(verdict: Verdict) -> dict[str, Any]:
    """What both templates tell."""
    case = verdict.case
    return {
        "verdict": verdict,
        "case": case,
        "capture": case.capture,
        "name": Path(case.capture.script).name or case.capture.script,
        "say": sentences,
        "beside": side_notes,
        "memory": memory_of(case),
        "parts": _parts(case.step_parts),
        "findings": verdict.findings[:MOST_FINDINGS],
        "more_findings": max(0, len(verdict.findings) - MOST_FINDINGS),
        "what_ifs": lambda finding: _what_ifs(verdict, finding),
        "tones": TONES,
        "best": next(iter(_what_ifs(verdict, verdict.main)), None) if verdict.main else None,
    }


def _parts(parts: dict[str, float]) -> list[Part]:
    whole = sum(parts.values()) or 1.0
    before = accumulate(parts.values(), initial=0.0)
    drawn = [
        Part(name, tone_of_part(name), value, value / whole, start / whole)
        for (name, value), start in zip(parts.items(), before, strict=False)
    ]
    return [part for part in drawn if part.share >= SMALLEST_PART]


def _what_ifs(verdict: Verdict, finding: Finding) -> list[WhatIf]:
    step = verdict.case.step_seconds
    return [
        WhatIf(
            cure,
            sentences.gain(verdict, cure),
            seconds_between(*predicted(cure.low, cure.high, step)),
            *(value / step for value in predicted(cure.low, cure.high, step)),
        )
        for cure in finding.best_first
    ]


def _json(values: dict[str, Any]) -> Markup:
    """Values that stand inside a script element: nothing in them may end it."""
    text = json.dumps(values, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def _brief(text: object) -> str:
    return at_most(str(text), LONGEST_TEXT)


def _fact(value: object, name: str) -> str:
    """A fact of a machine as people read it."""
    if name.endswith("nbytes") and isinstance(value, int | float):
        return format_nbytes(value)
    return _brief(value)


_TEMPLATES = Environment(
    loader=PackageLoader("forebay.doctor.report", "page"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.filters |= {
    "brief": _brief,
    "counted": counted,
    "fact": _fact,
    "nbytes": format_nbytes,
    "percent": percent,
    "seconds": seconds,
    "times": times,
    "tone": tone_of_kind,
}
