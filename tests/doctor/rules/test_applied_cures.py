"""The code of every cure runs in the script for which the doctor offers it."""

import pytest
from tests.doctor.applied_cures import apply_cure, is_fitted

# Cures that the doctor shows as a sketch -> why no edit of the script is certain to run.
SKETCHES = {
    "check for NaN and Inf on the device, and read the result later": "The script decides what follows a failed check.",
    "reduce it on the device and read back one number": "The NumPy code after the read-back may be any code.",
    "use one operation for all elements": "The operation that replaces a loop depends on what the loop computes.",
    "launch the step as one graph": "A CUDA graph needs fixed addresses for the tensors of the whole script.",
    "keep shapes constant, or compile for any shape": "Only the script knows the longest row and what padding means.",
    "use one thread per worker, and no more workers than cores": "The code is a command line, not an edit of code.",
    "call `fit` once": "The calls of `fit` may differ in data that only the script can put together.",
    "keep a running result, or only the last values": "Which values the script still needs is not visible.",
    "write new rows into an array that exists": "The size of the array depends on the length of the run.",
    "save in a background thread": "Keras saves other files, so the script must load the model in another way.",
    "make a batch with fewer operations": "The script decides how it makes a batch.",
    "decode the files once, and store the rows": "Where the rows are stored is a choice of the user.",
    "switch it off; run with --verify to measure what this saves": "A profiler is a block around the whole loop.",
    "keep the step in one graph": "The code finds graph breaks: its options raise an error at the first break.",
    "if the data is in tensors, index them": "The dataset may compute its rows instead of storing them.",
    "build it once, before the loop": "What the loop builds may depend on the step, such as a learning rate.",
    "convert it before the loop": "A session needs a variable of its graph instead of a placeholder.",
    "prefetch rows, several at a time": "A session needs an iterator of its graph instead of placeholders.",
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
    assert {name.split(": ", 2)[2] for name in sketches} <= {*SKETCHES}


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
