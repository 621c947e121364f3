"""Tools that run for every line or function of the script: debuggers, coverage, profilers.

They use `sys.settrace`, `sys.setprofile` or `sys.monitoring`. Hooks of these functions would appear in what the tools
record. So the doctor only reads what is set on the loop's thread, when the profiled steps end.
"""

import sys
from time import perf_counter_ns

from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.model.debug_settings import DebugSetting
from forebay.doctor.model.events import EventKind

__all__ = ["active_tools", "record_tools"]

_OWN_HOOKS = ("cProfile", "_lsprof")  # modules of profilers whose calls are recorded by `hooks.python`
_MONITORS = (0, 1)  # ids of debuggers and of coverage tools in `sys.monitoring`


def record_tools(ledger: Ledger, start: int) -> None:
    """Record each tool that is active on this thread as on from `start` (nanoseconds) until now."""
    for setting in sorted(active_tools()):
        ledger.append((EventKind.SETTING, setting.value, -1), start, perf_counter_ns())


def active_tools() -> frozenset[DebugSetting]:
    """Return the tools that trace or profile the current thread."""
    profile = sys.getprofile()
    found = {DebugSetting.TRACE} if sys.gettrace() is not None or _has_monitor() else set()
    if profile is not None and type(profile).__module__ not in _OWN_HOOKS:
        found.add(DebugSetting.PROFILE)
    return frozenset(found)


def _has_monitor() -> bool:
    """Whether a debugger or a coverage tool uses `sys.monitoring`, which Python has since 3.12."""
    monitoring = getattr(sys, "monitoring", None)
    return monitoring is not None and any(monitoring.get_tool(number) is not None for number in _MONITORS)
