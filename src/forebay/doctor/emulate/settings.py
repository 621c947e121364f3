"""Emulation of a script without a debug setting: the calls that switch the setting on do nothing."""

from collections.abc import Iterable
from contextlib import nullcontext
from functools import partial
from typing import Any

from forebay.doctor.capture.hooks.switches import ContextSwitch, Switch, first_argument
from forebay.doctor.capture.patches import Patches
from forebay.doctor.model.emulation import Emulation, EmulationKind

__all__ = ["DisabledSetting"]


class DisabledSetting:
    """Keeps a debug setting off for emulations of the kind OFF. For other kinds, `disable` replaces nothing."""

    def __init__(self, emulation: Emulation) -> None:
        self.setting = emulation.setting if emulation.kind is EmulationKind.OFF else ""
        self.replaced = 0

    def disable(self, patches: Patches, switches: Iterable[Switch], contexts: Iterable[ContextSwitch] = ()) -> None:
        """Replace the functions that switch the setting."""
        for switch in switches:
            if switch.setting == self.setting:
                patches.replace(switch.owner, switch.name, partial(self._wrap, switch), api=switch.name)
        for context in contexts:
            if context.setting == self.setting:
                patches.replace(context.owner, context.name, self._wrap_context, api=context.name)

    def _wrap(self, switch: Switch, original: Any) -> Any:
        """Return a hook that skips calls that switch the setting on or off.

        If the setting is a keyword of the call, the hook makes the call with False for this keyword. The hook does not
        change calls that have no effect on the setting.
        """

        def hook(*args: Any, **kwargs: Any) -> Any:
            is_on = switch.state_of_call(*args, **kwargs)
            if is_on is None or (switch.keyword and not is_on):
                return original(*args, **kwargs)
            self.replaced += bool(is_on)
            return original(*args, **kwargs | {switch.keyword: False}) if switch.keyword else None

        return hook

    def _wrap_context(self, original: Any) -> Any:
        def hook(*args: Any, **kwargs: Any) -> Any:
            if not first_argument(*args, **kwargs):
                return original(*args, **kwargs)
            self.replaced += 1
            return nullcontext()

        return hook
