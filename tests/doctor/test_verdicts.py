"""From a script to its verdict: every fault is named by its rule and on its line; no healthy twin is accused of it.

Twins may be slow for other reasons on a machine that is busy, so they are asked about their own fault only.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from forebay.doctor.analyse.verdict import judge
from forebay.doctor.captured import Capture

FOLDER = Path(__file__).parent
SETTINGS = {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(FOLDER / "stand_in")}
SETTINGS |= {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "TF_CPP_MIN_LOG_LEVEL": "3"}

FREE_ON_THE_CPU = {("torch", "read_back")}  # nothing runs behind the host's back there, so nothing is waited for
ALSO_CALLED = {  # another name for the same: which one comes first is a matter of what costs more
    ("torch", "input_bound"): {"loader"},
    ("cupy", "many_small_copies"): {"conversion_in_loop"},
    ("jax", "many_small_copies"): {"conversion_in_loop"},
    ("jax", "retracing_value"): {"retracing"},
}


def scripts(framework):
    return sorted(path.stem for path in (FOLDER / "scripts" / framework).glob("*.py"))


def pairs():
    return [
        (framework, name)
        for framework in ("torch", "jax", "cupy")
        for name in scripts(framework)
        if not name.endswith("_healthy")
    ]


@pytest.fixture(scope="module")
def captures(tmp_path_factory):
    """All scripts of a framework, watched once, in a process of its own."""
    kept = {}

    def captured(framework, name):
        if framework not in kept:
            kept[framework] = tmp_path_factory.mktemp(framework)
            command = [sys.executable, "-m", "tests.doctor.watch_scripts", framework, str(kept[framework])]
            done = subprocess.run(
                command,
                env=os.environ | SETTINGS,
                cwd=FOLDER.parent.parent,
                capture_output=True,
                text=True,
                timeout=110,
                check=False,
            )
            assert done.returncode == 0, done.stderr[-4000:]
        return Capture.load(kept[framework] / f"{name}.capture")

    return captured


def rules_of(framework, name):
    return {name} | ALSO_CALLED.get((framework, name), set())


@pytest.mark.parametrize(("framework", "name"), [pair for pair in pairs() if pair not in FREE_ON_THE_CPU])
def test_a_fault_is_named_on_its_line(captures, framework, name):
    verdict = judge(captures(framework, name))
    named = [finding for finding in verdict.findings if finding.rule in rules_of(framework, name)]
    assert named, [finding.title for finding in verdict.findings]
    assert named[0].line is not None
    assert named[0].line.file.endswith(f"{name}.py")
    assert verdict.silent == ()


@pytest.mark.parametrize(("framework", "name"), pairs())
def test_a_healthy_twin_is_not_accused_of_it(captures, framework, name):
    verdict = judge(captures(framework, f"{name}_healthy"))
    accused = [finding.title for finding in verdict.findings if finding.rule in rules_of(framework, name)]
    assert accused == []
    assert verdict.silent == ()
