"""Emulation of a script without tracemalloc and cProfile: the calls that start them do nothing."""

from functools import partial

from forebay.doctor.capture.hooks.python import profile_switches, tracemalloc_switches
from forebay.doctor.capture.post_import import PostImportActions
from forebay.doctor.emulate.emulator import Emulator

__all__ = ["install", "wait"]


def install(emulator: Emulator) -> None:
    """Replace the calls that start and stop `tracemalloc` and `cProfile`."""
    emulator.settings.disable(emulator.patches, tracemalloc_switches())
    imports = PostImportActions({"cProfile": partial(_keep_profile_off, emulator)})
    imports.install()
    emulator.patches.add_undo(imports.remove, api="cProfile")


def wait() -> None:
    """Do nothing: these tools use no device."""


def _keep_profile_off(emulator: Emulator) -> None:
    emulator.settings.disable(emulator.patches, profile_switches())
