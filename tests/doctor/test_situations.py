"""Situations that people ask about, one a script of situations/: the doctor says of each what was decided by hand.

Compared are whether a loop was found, the rules in their order and the text of the main line; never a time. Beside its
`why`, a snapshot may name rules that come and go with the machine (`beside`), and two names for one cause (`same_as`).
After a change that makes verdicts better, read them and write them down; what stands under `why` is yours to mend:

    python -m tests.doctor.situation_snapshots           # what differs
    python -m tests.doctor.situation_snapshots --write   # and make it the snapshot of this kind of machine
"""

import pytest
from tests.doctor.situation_snapshots import SITUATIONS, compared, kept, seen

NAMES = sorted(path.stem for path in SITUATIONS.glob("s*.py"))
WITHOUT_GPU = {"CUDA_VISIBLE_DEVICES": ""}
pytestmark = pytest.mark.timeout(1300)


@pytest.fixture(scope="module")
def on_cpu(tmp_path_factory):
    return seen(tmp_path_factory.mktemp("situations"), WITHOUT_GPU)


@pytest.mark.parametrize("name", NAMES)
def test_the_verdict_is_the_one_decided_by_hand(on_cpu, name):
    assert compared(on_cpu[name], kept()[name]["cpu"]) == kept()[name]["cpu"]


@pytest.mark.parametrize("name", NAMES)
def test_the_script_runs_to_its_end_and_every_rule_was_asked(on_cpu, name):
    assert (on_cpu[name]["ended"], on_cpu[name]["silent"]) == ("done", [])


def test_every_script_has_a_snapshot_with_its_reason():
    assert sorted(kept()) == NAMES
    assert [name for name, snapshot in kept().items() if not snapshot["why"].endswith(".")] == []
