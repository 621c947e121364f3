"""Situations that people ask about, on a GPU: the doctor says of each what was decided by hand."""

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
def test_the_verdict_on_a_gpu_is_the_one_decided_by_hand(on_gpu, name):
    assert compared(on_gpu[name], kept()[name]["gpu"]) == kept()[name]["gpu"]
