"""Color names for the parts of a step and for events.

The name of a color is an event kind, KERNEL or REST. The style sheets of the page define the colors themselves.
"""

from forebay.doctor.analyse.idle_time import LAUNCHING
from forebay.doctor.analyse.step_parts import COMPUTING
from forebay.doctor.analyse.steps import PARTS
from forebay.doctor.model.events import EventKind
from forebay.doctor.report.device_events import KERNEL

__all__ = ["COLOR_LABELS", "REST", "color_of_kind", "color_of_part"]

REST = "rest"  # color of time that belongs to no event kind
# Parts that only recorded steps have -> event kinds with the color of the part.
_DEVICE_PARTS = {COMPUTING: frozenset({EventKind.RUN}), LAUNCHING: frozenset({EventKind.OPS})}


def color_of_part(part: str) -> str:
    """Return the color of a part: its first kind in EventKind's order, or REST."""
    kinds = PARTS.get(part, _DEVICE_PARTS.get(part, frozenset()))
    return next((kind.value for kind in EventKind if kind in kinds), REST)


def color_of_kind(kind: str) -> str:
    """Return the color of the part that contains the kind, or the kind's own color."""
    return _COLORS_BY_KIND.get(kind, kind)


_COLORS_BY_KIND = {kind: color_of_part(part) for part, kinds in PARTS.items() for kind in kinds}
_PARTS_BY_COLOR = {color_of_part(part): part for part in PARTS}
_KINDS = (*(kind.value for kind in EventKind if kind is not EventKind.STEP), KERNEL)

# Color -> label in the legend: the name of the part with this color, or the event kind.
COLOR_LABELS = {color: _PARTS_BY_COLOR.get(color, color) for color in map(color_of_kind, _KINDS)}
