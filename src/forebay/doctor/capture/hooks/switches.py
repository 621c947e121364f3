"""Hooks for functions that switch debug settings on and off.

The hooks record when a setting is on, and the line of the script that switched it on. The modules `settings` of the
frameworks list the functions. Emulations use these lists to keep a setting off.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import perf_counter_ns
from typing import Any

from forebay.doctor.capture.hooks.calls import run_guarded
from forebay.doctor.capture.patches import Patches
from forebay.doctor.model.debug_settings import DebugSetting
from forebay.doctor.model.events import EventKind

__all__ = ["ContextSwitch", "SettingSpans", "Switch", "always", "first_argument", "never"]


@dataclass(frozen=True, slots=True)
class Switch:
    """A function that switches a setting on or off."""

    setting: DebugSetting
    owner: Any
    name: str
    # The state that a call sets: (*args, **kwargs) -> on or off; None: the call leaves the setting as it is.
    state_of_call: Callable[..., bool | None]
    keyword: str = ""  # the argument that switches the setting, if the function also does other work


@dataclass(frozen=True, slots=True)
class ContextSwitch:
    """A function that returns a context manager, in which a setting is on or off."""

    setting: DebugSetting
    owner: Any
    name: str


def first_argument(*args: Any, **kwargs: Any) -> bool:
    """Whether the first argument of a call, positional or by keyword, is true or missing."""
    return bool(next(iter((*args, *kwargs.values())), True))


def always(*args: Any, **kwargs: Any) -> bool:
    """Return True, for a function that switches a setting on."""
    return True


def never(*args: Any, **kwargs: Any) -> bool:
    """Return False, for a function that switches a setting off."""
    return False


class SettingSpans:
    """Records the spans of time in which settings are on.

    `Patches.restore` ends the spans that are still open.
    """

    def __init__(self, patches: Patches) -> None:
        self._patches, self._ledger = patches, patches.ledger
        self._open: dict[DebugSetting, tuple[int, int]] = {}  # line and start, in nanoseconds
        patches.add_undo(self._close_all, api="debug settings")

    def hook(self, *switches: Switch) -> None:
        """Record the settings that these functions switch."""
        for switch in switches:
            self._patches.replace(switch.owner, switch.name, partial(self._wrap, switch), api=switch.setting)

    def hook_contexts(self, *switches: ContextSwitch) -> None:
        """Record the settings of the context managers that these functions return."""
        for switch in switches:
            self._patches.replace(switch.owner, switch.name, partial(self._wrap_context, switch), api=switch.setting)

    def switch(self, setting: DebugSetting, is_on: bool | None, *, line: int | None = None) -> None:
        """Begin or end the span of a setting; None for `is_on`: do nothing.

        `line` is the index of the line that switches the setting; None: the innermost line of the script on the stack.
        """
        if is_on and setting not in self._open and self._ledger.is_on:
            line_index = self._ledger.lines.current_line() if line is None else line
            self._open[setting] = line_index, perf_counter_ns()
        elif is_on is False:
            self._close(setting)

    def _wrap(self, switch: Switch, original: Any) -> Any:
        def hook(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            run_guarded(self._ledger, switch.setting, self._on_call, switch, args, kwargs)
            return result

        return hook

    def _on_call(self, switch: Switch, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.switch(switch.setting, switch.state_of_call(*args, **kwargs))

    def _wrap_context(self, switch: ContextSwitch, original: Any) -> Any:
        def hook(*args: Any, **kwargs: Any) -> Any:
            context = original(*args, **kwargs)
            return _RecordedContext(context, self, switch.setting) if first_argument(*args, **kwargs) else context

        return hook

    def _close(self, setting: DebugSetting) -> None:
        span = self._open.pop(setting, None)
        if span is not None:
            self._ledger.append((EventKind.SETTING, setting.value, span[0]), span[1], perf_counter_ns())

    def _close_all(self) -> None:
        for setting in [*self._open]:
            self._close(setting)


class _RecordedContext:
    """A context manager that also records a setting as on."""

    def __init__(self, context: Any, spans: SettingSpans, setting: DebugSetting) -> None:
        self._context, self._spans, self._setting = context, spans, setting
        self._is_outermost = False

    def __enter__(self) -> Any:
        value = self._context.__enter__()
        run_guarded(self._spans._ledger, self._setting, self._begin)
        return value

    def __exit__(self, *error: Any) -> Any:
        if self._is_outermost:
            run_guarded(self._spans._ledger, self._setting, self._spans.switch, self._setting, False)
        return self._context.__exit__(*error)

    def _begin(self) -> None:
        self._is_outermost = self._setting not in self._spans._open
        self._spans.switch(self._setting, True)
