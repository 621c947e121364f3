"""Frequent situations on a GPU: each diagnosis equals its snapshot."""

from importlib.util import find_spec

import pytest
from tests.doctor.situation_snapshots import SITUATIONS, load_snapshots, profile_situations, to_snapshot

NAMES = sorted(path.stem for path in SITUATIONS.glob("s*.py"))
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(300),
    pytest.mark.skipif(find_spec("tensorflow") is None, reason="tensorflow is not installed"),
]


@pytest.fixture(scope="module")
def on_gpu(device, tmp_path_factory):
    return profile_situations(tmp_path_factory.mktemp("situations"), {})


@pytest.mark.parametrize("name", NAMES)
def test_the_diagnosis_on_a_gpu_equals_the_expected_one(on_gpu, name):
    assert to_snapshot(on_gpu[name], load_snapshots()[name]["gpu"]) == load_snapshots()[name]["gpu"]
