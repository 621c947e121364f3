"""Frequent situations on a GPU: each diagnosis equals its snapshot."""

from importlib.util import find_spec

import pytest
from tests.doctor.situation_snapshots import SITUATIONS, compared, kept, seen

NAMES = sorted(path.stem for path in SITUATIONS.glob("s*.py"))
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(300),
    pytest.mark.skipif(find_spec("tensorflow") is None, reason="tensorflow is not installed"),
]


@pytest.fixture(scope="module")
def on_gpu(device, tmp_path_factory):
    return seen(tmp_path_factory.mktemp("situations"), {})


@pytest.mark.parametrize("name", NAMES)
def test_the_diagnosis_on_a_gpu_equals_the_expected_one(on_gpu, name):
    assert compared(on_gpu[name], kept()[name]["gpu"]) == kept()[name]["gpu"]
