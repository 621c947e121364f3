"""A fixture for tests that run scripts in this process."""

import sys

import pytest


@pytest.fixture(autouse=True)
def restored_interpreter(monkeypatch):
    """Restore what a script changes. The doctor keeps the `__main__` of a script that has ended (main_module.py)."""
    for name in ("__main__", "__mp_main__"):
        monkeypatch.setitem(sys.modules, name, sys.modules["__main__"])
    for name in ("argv", "orig_argv", "path"):
        monkeypatch.setattr(sys, name, [*getattr(sys, name)])
