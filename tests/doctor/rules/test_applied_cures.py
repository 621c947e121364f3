"""The code of every cure runs in the script for which the doctor offers it."""

import pytest
from tests.doctor.applied_cures import apply_cure, is_fitted

# Cures whose code depends on what the script computes. The doctor shows a sketch of it.
SKETCHES = {
    "check for NaN and Inf on the device, and read the result later",
    "reduce it on the device and read back one number",
    "use one operation for all elements",
    "compile the loop",
    "launch the step as one graph",
    "keep shapes constant, or compile for any shape",
    "use one thread per worker, and no more workers than cores",  # a command line
    "call `fit` once",
    # Rules that name the line of the fault, and show what to write instead
    "keep a running result, or only the last values",
    "write new rows into an array that exists",
    "save less often",
    "switch it off; run with --verify to measure what this saves",
    "keep the step in one graph",
    "if the data is in tensors, index them",
    "enable compilation",
    "remove the call",
    # Sessions of TensorFlow 1, and `model.compile` in a loop
    "build it once, before the loop",
    "convert it before the loop",
    "prefetch rows, several at a time",
}
# Cures whose code fits other scripts, but not these.
UNFIT = {
    "cures/overlap: copy_not_overlapped: let a feed prefetch the next batch",  # a function makes and uploads the batch
}


@pytest.mark.parametrize("framework", ["torch", "jax", "tensorflow", "keras"])
def test_every_cure_runs_in_its_script(framework_processes, framework):
    ended = framework_processes.cured_scripts(framework)
    assert sum(result == "ran" for result in ended.values()) >= 8
    assert {name: result for name, result in ended.items() if result not in ("ran", "sketch")} == {}
    sketches = {name for name, result in ended.items() if result == "sketch" and is_certain(name)} - UNFIT
    assert {name.split(": ", 2)[2] for name in sketches} <= SKETCHES


def is_certain(name):
    """Whether the doctor finds this on every machine: a recorded capture, or the fault that names the script."""
    script, rule, _ = name.split(": ", 2)
    return script.startswith("cures/") or script.removeprefix("scripts/").startswith(rule)


def test_code_is_pasted_at_its_lines_with_their_indentation():
    source = "a = 1\nfor i in range(3):\n    b = 2\n    c = 3\nd = 4\n"
    code = "# before line 3:\nx = 0\n# instead of lines 3 to 4:\nif i:\n    y = 1\n# after the loop of line 2:\nz = 5"
    assert is_fitted(code)
    wanted = "a = 1\nfor i in range(3):\n    x = 0\n    if i:\n        y = 1\nz = 5\nd = 4\n"
    assert apply_cure(source, code) == wanted
    assert apply_cure(source, "# remove line 4") == source.replace("    c = 3\n", "")
    assert not is_fitted("x = 1   # before the loop")
