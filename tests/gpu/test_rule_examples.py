"""On a GPU, the doctor finds each fault of `tests/doctor/rule_examples`, but not in its twin."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
from tests.gpu.processes import SHARING
from tests.support.paths import DOCTOR

EXAMPLES = {  # rule: package
    "allocator": "torch",
    "jax_steps": "jax",
    "memory_bound": "torch",
    "nnx_modules": "flax",
    "unused_gpu": "torch",
}
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("device"),
    pytest.mark.parametrize(
        "rule",
        [
            pytest.param(rule, marks=pytest.mark.skipif(not find_spec(package), reason=f"{package} is not installed"))
            for rule, package in EXAMPLES.items()
        ],
    ),
]


def rules_found(name, folder):
    result = folder / "diagnosis.json"
    script = DOCTOR / "rule_examples" / f"{name}.py"
    command = [sys.executable, "-m", "forebay", "doctor", "--json", str(result), str(script)]
    done = subprocess.run(command, env=os.environ | SHARING, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    return [finding["rule"] for finding in json.loads(result.read_text())["findings"]]


def test_the_doctor_finds_the_fault(rule, tmp_path):
    assert rule in rules_found(rule, tmp_path)


def test_a_healthy_twin_has_no_finding_of_the_rule(rule, tmp_path):
    assert rule not in rules_found(f"{rule}_healthy", tmp_path)
