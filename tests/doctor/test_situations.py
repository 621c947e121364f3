"""The diagnoses of the scripts in situations/, compared with reviewed snapshots.

The tests compare whether the doctor found a loop, the rules in order, and the text of the main line. They compare no
times. Each snapshot gives its reason (`why`). It may list rules that depend on the machine (`optional`) and two names
for one cause (`same_as`). After a change that improves diagnoses, check the differences, write the snapshots and edit
each `why`:

    python -m tests.doctor.situation_snapshots           # show the differences
    python -m tests.doctor.situation_snapshots --write   # write the snapshots for this kind of machine
"""

import pytest
from tests.doctor.situation_snapshots import SITUATIONS, load_snapshots, profile_situations, to_snapshot

NAMES = sorted(path.stem for path in SITUATIONS.glob("s*.py"))
WITHOUT_GPU = {"CUDA_VISIBLE_DEVICES": ""}
pytestmark = pytest.mark.timeout(1300)


@pytest.fixture(scope="module")
def on_cpu(tmp_path_factory):
    return profile_situations(tmp_path_factory.mktemp("situations"), WITHOUT_GPU)


@pytest.mark.parametrize("name", NAMES)
def test_the_diagnosis_equals_its_snapshot(on_cpu, name):
    assert to_snapshot(on_cpu[name], load_snapshots()[name]["cpu"]) == load_snapshots()[name]["cpu"]


@pytest.mark.parametrize("name", NAMES)
def test_the_script_ends_normally_and_no_rule_fails(on_cpu, name):
    assert (on_cpu[name]["ended"], on_cpu[name]["failures"]) == ("done", [])


def test_every_script_has_a_snapshot_with_its_reason():
    assert sorted(load_snapshots()) == NAMES
    assert [name for name, snapshot in load_snapshots().items() if not snapshot["why"].endswith(".")] == []
