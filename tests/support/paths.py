"""Folders that tests of several packages share."""

from pathlib import Path

__all__ = ["DOCTOR", "ROOT", "TESTS"]

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
DOCTOR = TESTS / "doctor"  # scripts, cures, recorded captures, and stand-ins for libraries
