"""Checks of JSON values, which may come from damaged or hostile files."""

import pytest

from forebay.core import json_checks as checks


def test_integers_that_no_float_can_hold_are_refused():
    with pytest.raises(ValueError, match="size is a huge number, not a number from"):
        checks.number()(10**400, "size")
    with pytest.raises(ValueError, match="is a huge number"):
        checks.any_value({"size": [-(10**400)]}, "facts")
