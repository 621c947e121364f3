"""Names of functions in `explain()` and error messages."""

from functools import partial
from types import SimpleNamespace

import pytest

from forebay.core.decision import function_name


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (len, "len"),
        (SimpleNamespace(__name__="isfinite"), "isfinite"),  # a ufunc of NumPy 2.0
        (SimpleNamespace(name="loader"), "loader"),
        (partial(len), "partial"),
    ],
)
def test_a_function_has_the_name_that_its_user_knows(function, name):
    assert function_name(function) == name
