"""The CI workflows in the documentation: valid, and with checked-out folders only."""

import re

import pytest
import yaml
from tests.support.paths import ROOT

BLOCKS = {
    f"{page.name}-{number}": text
    for page in sorted((ROOT / "docs").rglob("*.md"))
    for number, text in enumerate(re.findall(r"^```ya?ml[^\n]*\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE))
}


def steps_of(name):
    jobs = yaml.safe_load(BLOCKS[name]).get("jobs", {})
    return [step for job in jobs.values() for step in job["steps"]]


def local_folders(command):
    """Return the folders that a command names as `./NAME`."""
    return set(re.findall(r"(?<!\S)\./([\w-]+)", command))


def test_the_page_about_ci_has_a_workflow():
    assert "ci.md-0" in BLOCKS


@pytest.mark.parametrize("name", BLOCKS)
def test_every_folder_that_a_command_uses_was_checked_out_before(name):
    steps = steps_of(name)
    for position, step in enumerate(steps):
        before = [each for each in steps[:position] if each.get("uses", "").startswith("actions/checkout")]
        assert before or "run" not in step
        assert local_folders(step.get("run", "")) <= {each.get("with", {}).get("path") for each in before}
