"""Arguments of `cache()`: the fixture `place` is a budget in RAM, or a folder."""

import pytest


def places(tmp_path):
    return {"ram": ("1MB",), "disk": (tmp_path / "rows",)}


@pytest.fixture(params=["ram", "disk"])
def place(request, tmp_path):
    return places(tmp_path)[request.param]


@pytest.fixture
def version(place):
    return {} if place == ("1MB",) else {"version": "1"}
