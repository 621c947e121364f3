"""Colours of the parts of a step and of the events that belong to them."""

from forebay.doctor.analyse.idle_time import LAUNCHING
from forebay.doctor.analyse.step_parts import COMPUTING
from forebay.doctor.analyse.steps import PARTS
from forebay.doctor.model.events import EventKind
from forebay.doctor.report.device_events import KERNEL

__all__ = ["COLOR_LABELS", "REST", "color_of_kind", "color_of_part"]

REST = "rest"  # the colour of everything that belongs to no part
_DEVICE_PARTS = {COMPUTING: frozenset({EventKind.RUN}), LAUNCHING: frozenset({EventKind.OPS})}


def color_of_part(part: str) -> str:
    """Return the name of a part's colour: the first event kind in it."""
    kinds = PARTS.get(part, _DEVICE_PARTS.get(part, frozenset()))
    return next((kind.value for kind in EventKind if kind in kinds), REST)


def color_of_kind(kind: str) -> str:
    return _COLORS.get(kind, kind)


_COLORS = {kind: color_of_part(part) for part, kinds in PARTS.items() for kind in kinds}
_PARTS = {color_of_part(part): part for part in PARTS}
_KINDS = (*(kind.value for kind in EventKind if kind is not EventKind.STEP), KERNEL)

COLOR_LABELS = {color: _PARTS.get(color, color) for color in map(color_of_kind, _KINDS)}  # for the legend
