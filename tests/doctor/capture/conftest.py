"""Gives the tests of captures, which run scripts in this process, a fixture that restores the interpreter."""

from tests.support.restored_interpreter import restored_interpreter  # noqa: F401 (an autouse fixture)
