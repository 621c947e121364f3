"""The page of the doctor's rules, and the scripts to which its sections link."""

import json
import os
import re
import subprocess
import sys
from functools import cache

import pytest
from tests.doctor.rules.fault_lines import LINES
from tests.gpu.fault_lines import LINES as GPU_LINES
from tests.support.paths import DOCTOR, ROOT

from forebay.doctor.rules.registry import RULES

PAGE = ROOT / "docs" / "rules.md"
EXAMPLES = DOCTOR / "rule_examples"
FOUND_ON_CPU = ("host", "keras_steps")
RUN_ON_CPU = (
    *FOUND_ON_CPU,
    "allocator",
    "collectives",
    "jax_steps",
    "memory_bound",
    "unused_gpu",
)  # `nnx_modules` needs Flax
ONE_RANK = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29517"}
ENVIRONMENT = (
    os.environ | ONE_RANK | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "KERAS_BACKEND": "tensorflow"}
)


@cache
def sections():
    """Return the text of each section by its title."""
    parts = PAGE.read_text().split("\n## ")[1:]
    return {title: text.strip() for title, _, text in (part.partition("\n") for part in parts)}


def scripts_of(rule):
    """Return the paths of the faulty script and of its healthy twin."""
    (links,) = re.findall(r"^\[With the fault\]\(\.\./(\S+)\), \[without it\]\(\.\./(\S+)\)$", sections()[rule], re.M)
    return [ROOT / path for path in links]


def run(*arguments):
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=500, check=False)


def rules_found(script, folder):
    result = folder / "diagnosis.json"
    done = run("-m", "forebay", "doctor", "--json", result, script)
    assert done.returncode == 0, done.stderr
    return [finding["rule"] for finding in json.loads(result.read_text())["findings"]]


def test_every_rule_has_a_section_and_every_section_a_rule():
    assert list(sections()) == list(RULES)


@pytest.mark.parametrize("rule", RULES)
def test_a_section_has_a_text_and_the_scripts_of_its_rule(rule):
    assert len(sections()[rule].split()) > 30
    assert [path.name for path in scripts_of(rule)] == [f"{rule}.py", f"{rule}_healthy.py"]
    assert [path for path in scripts_of(rule) if not path.is_file()] == []


@pytest.mark.parametrize("rule", RULES)
def test_other_tests_or_this_file_run_the_scripts_of_a_section(rule):
    """Tests run all scripts in `tests/doctor/scripts` and `tests/gpu/faults` that `fault_lines` lists."""
    folder = scripts_of(rule)[0].parent
    assert folder == EXAMPLES or rule in {**GPU_LINES[folder.name], **LINES[folder.name]}


def test_the_page_shows_every_example():
    shown = {path for rule in RULES for path in scripts_of(rule)}
    assert set(EXAMPLES.glob("*.py")) - shown == set()


@pytest.mark.parametrize("script", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_compiles(script):
    compile(script.read_text(), script, "exec")


@pytest.mark.long
@pytest.mark.parametrize("rule", RUN_ON_CPU)
def test_the_scripts_run_on_a_cpu(rule):
    for script in scripts_of(rule):
        done = run(script)
        assert done.returncode == 0, done.stderr


@pytest.mark.long
@pytest.mark.parametrize("rule", FOUND_ON_CPU)
def test_the_doctor_finds_the_fault_and_only_the_fault(rule, tmp_path):
    fault, healthy = scripts_of(rule)
    assert rule in rules_found(fault, tmp_path)
    assert rule not in rules_found(healthy, tmp_path)
