"""Hooks for `cProfile` and `tracemalloc`, which slow down every function or allocation."""

import tracemalloc
from functools import partial
from importlib import import_module

from forebay.doctor.capture.hooks.switches import SettingSpans, Switch, always, never
from forebay.doctor.capture.patches import Patches
from forebay.doctor.capture.post_import import PostImportActions
from forebay.doctor.model.debug_settings import DebugSetting

__all__ = ["install", "profile_switches", "tracemalloc_switches"]


def tracemalloc_switches() -> tuple[Switch, ...]:
    return (
        Switch(DebugSetting.TRACEMALLOC, tracemalloc, "start", always),
        Switch(DebugSetting.TRACEMALLOC, tracemalloc, "stop", never),
    )


def profile_switches() -> tuple[Switch, ...]:
    """Return the switches of `cProfile`. Call this after the script has imported it."""
    profile = import_module("cProfile").Profile
    return (
        Switch(DebugSetting.CPROFILE, profile, "enable", always),
        Switch(DebugSetting.CPROFILE, profile, "disable", never),
    )


def install(patches: Patches) -> None:
    spans = SettingSpans(patches)
    spans.hook(*tracemalloc_switches())
    spans.switch(DebugSetting.TRACEMALLOC, tracemalloc.is_tracing() or None, line=-1)
    imports = PostImportActions({"cProfile": partial(_hook_profile, spans)})
    imports.install()
    patches.add_undo(imports.remove, api=DebugSetting.CPROFILE)


def _hook_profile(spans: SettingSpans) -> None:
    spans.hook(*profile_switches())
