"""Changes of the time of host actions, which do not change device operations.

The docstring of a function says what the returned change does.
"""

from collections.abc import Callable, Collection
from dataclasses import replace

from forebay.doctor.predict.changes import Change, is_call_of
from forebay.doctor.predict.timeline import HostAction, Timeline

__all__ = ["hide_calls", "scale_calls", "scale_kinds", "shorten_calls", "take_at_least", "unchanged"]


def unchanged(timeline: Timeline) -> Timeline:
    """Return the timeline itself: an outcome in which a cure saves nothing."""
    return timeline


def scale_calls(line: int, kinds: Collection[str], share: float) -> Change:
    """Multiply the time of calls of these kinds on a line by `share`."""
    return lambda timeline: _scale(timeline, lambda action: is_call_of(action, kinds, line), share)


def scale_kinds(kinds: Collection[str], share: float) -> Change:
    """Multiply the time of all actions of these kinds by `share`."""
    return lambda timeline: _scale(timeline, lambda action: action.kind in kinds, share)


def shorten_calls(line: int, kinds: Collection[str], seconds: float) -> Change:
    """Let calls of these kinds on a line take at most `seconds` per step."""

    def change(timeline: Timeline) -> Timeline:
        total = sum(action.seconds for action in timeline.actions if is_call_of(action, kinds, line))
        share = min(1.0, seconds * timeline.step_count / total) if total else 1.0
        return scale_calls(line, kinds, share)(timeline)

    return change


def hide_calls(line: int, kinds: Collection[str], *, producer_seconds: float) -> Change:
    """Let another thread make calls of these kinds on a line during the step.

    The thread needs `producer_seconds` per step.
    """

    def change(timeline: Timeline) -> Timeline:
        return take_at_least(producer_seconds)(scale_calls(line, kinds, 0.0)(timeline))

    return change


def take_at_least(seconds: float) -> Change:
    """Let a step take at least `seconds`, which work outside of the timeline needs."""
    return lambda timeline: timeline.with_parts(min_step_seconds=seconds)


def _scale(timeline: Timeline, selects: Callable[[HostAction], bool], share: float) -> Timeline:
    return timeline.with_parts(
        actions=[
            replace(action, seconds=action.seconds * share) if selects(action) else action
            for action in timeline.actions
        ]
    )
