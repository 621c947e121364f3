"""Which colour a thing has: the parts of a step, and the events that are counted for them, share one."""

from forebay.doctor.analyse.idle_time import LAUNCHING
from forebay.doctor.analyse.step_parts import COMPUTING
from forebay.doctor.analyse.steps import PARTS
from forebay.doctor.model.events import Kind
from forebay.doctor.report.device_events import KERNEL

__all__ = ["REST", "TONES", "tone_of_kind", "tone_of_part"]

REST = "rest"  # what no part claims
_DEVICE_PARTS = {COMPUTING: frozenset({Kind.RUN}), LAUNCHING: frozenset({Kind.OPS})}


def tone_of_part(part: str) -> str:
    """The name of a part's colour: that of the first kind of event it holds."""
    kinds = PARTS.get(part, _DEVICE_PARTS.get(part, frozenset()))
    return next((kind.value for kind in Kind if kind in kinds), REST)


def tone_of_kind(kind: str) -> str:
    return _TONES.get(kind, kind)


_TONES = {kind: tone_of_part(part) for part, kinds in PARTS.items() for kind in kinds}
_PARTS = {tone_of_part(part): part for part in PARTS}
_KINDS = (*(kind.value for kind in Kind if kind is not Kind.STEP), KERNEL)

# What each tone stands for, in words.
TONES = {tone: _PARTS.get(tone, tone) for tone in map(tone_of_kind, _KINDS)}
