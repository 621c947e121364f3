"""The emulator: replaces framework calls when frameworks are imported, and restores them at the end."""

import importlib
import sys
from collections.abc import Callable, Iterable
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any

from forebay.doctor.capture.hooks.switches import ContextSwitch, Switch, first_argument
from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.capture.patches import Patches
from forebay.doctor.capture.post_import import PostImportActions
from forebay.doctor.emulate.batches import ResidentBatches
from forebay.doctor.emulate.target_line import TargetLine
from forebay.doctor.emulate.transfers import PreparedUploads, SkippedReads, UploadPrefetch, UploadReuse
from forebay.doctor.model.emulation import Emulation, EmulationKind
from forebay.doctor.model.redaction import describe_error

__all__ = ["FRAMEWORKS", "DisabledSetting", "Emulator", "skip_read", "wait_for_devices"]

# Framework -> the module of the doctor that lists the calls to replace.
FRAMEWORKS = {name: f"forebay.doctor.emulate.{name}" for name in ("torch", "tensorflow", "keras", "jax", "cupy")}
FRAMEWORKS |= {"sys": "forebay.doctor.emulate.python"}


def wait_for_devices() -> None:
    """Wait until the devices of all imported frameworks have finished all queued work."""
    for name, module in FRAMEWORKS.items():
        if name in sys.modules:
            with suppress(Exception):  # an unsupported version of the framework
                importlib.import_module(module).wait()


class Emulator:
    """Runs one emulation between `start` and `stop`.

    Start the emulator before a `Session` installs its hooks, so that the hooks wrap the replacements.
    """

    def __init__(self, emulation: Emulation) -> None:
        target = TargetLine(emulation.file, emulation.number)
        self.kind = emulation.kind
        self.batches = ResidentBatches(emulation, target)
        self.uploads = UploadReuse(emulation, target, self.batches.leaf_ids)
        self.reads = SkippedReads(emulation, target)
        self.prepared = PreparedUploads(emulation, target)
        self.prefetch = UploadPrefetch(emulation, target)
        self.settings = DisabledSetting(emulation)
        self.patches = Patches(Ledger())
        self._target = target
        self._imports = PostImportActions({name: partial(self._install, name) for name in FRAMEWORKS})

    def start(self) -> None:
        """Replace calls of loaded frameworks now, and of other frameworks when they are imported."""
        self._imports.install()

    def stop(self) -> None:
        """Restore all replaced calls. It is safe to call this twice."""
        self._imports.remove()
        self.patches.restore()

    @property
    def replaced(self) -> int:
        """The number of calls that did not run as written."""
        parts = (self.batches, self.uploads, self.reads, self.prepared, self.prefetch, self.settings)
        return sum(part.replaced for part in parts)

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about calls that could not be replaced."""
        return tuple(self.patches.ledger.notes)

    def is_target_calling(self) -> bool:
        """Whether the target line makes the current call."""
        return self._target.is_calling()

    def wait(self) -> None:
        """Wait until the devices have finished all queued work."""
        for module in [sys.modules[name] for name in FRAMEWORKS.values() if name in sys.modules]:
            with suppress(Exception):  # an unsupported version of the framework
                self._target.bypass(module.wait)

    def _install(self, name: str) -> None:
        """Replace the calls of a framework.

        An error becomes a note of the emulator, because it must not reach the script.
        """
        try:
            importlib.import_module(FRAMEWORKS[name]).install(self)
        except Exception as error:
            self.patches.ledger.note(f"{name} is not emulated: {describe_error(error)}")


class DisabledSetting:
    """Keeps a debug setting off, for emulations of the kind OFF.

    The calls that switch the setting do nothing, or run with the setting off. For other kinds, `disable` replaces
    nothing.
    """

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


def skip_read(name: str, emulator: Emulator, read: Callable[..., Any]) -> Callable[..., Any]:
    """Return a hook that skips most read-backs and returns an earlier value instead; see `SkippedReads.read`."""

    def hook(array: Any, *options: Any, **kwargs: Any) -> Any:
        return emulator.reads.read(partial(read, array, *options, **kwargs), name, array)

    return hook
