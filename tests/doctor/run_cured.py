"""Applies every cure to its script and runs the result, in one process per framework.

python -m tests.doctor.run_cured torch FOLDER

FOLDER has the captures of the scripts. The program writes the result of each cured script to FOLDER/cured.json.
"""

import ast
import json
import runpy
import sys
import traceback
from functools import cache, partial
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

from tests.doctor.applied_cures import apply_cure, is_fitted, with_excerpt
from tests.doctor.watch_scripts import RUNNERS, SCRIPTS, restore
from tests.support.parsing import parse

from forebay.doctor.diagnosis.diagnose import diagnose
from forebay.doctor.model.capture import Capture

FOLDER = Path(__file__).parent
FEW = 3  # iterations of each loop at the top level of a script
SKETCH = "sketch"  # result of a cure that cannot be applied, because its code names no lines of the script
NEEDS_GPU = "Cannot access accelerator device"  # error of `pin_memory` in PyTorch without a GPU


def results_of(script, capture, folder):
    """Yield the name and the result of each cure: "ran", "sketch" or the error."""
    source = script.read_text()
    run = cache(partial(answer_of, folder / f"{script.parent.parent.name}_{script.name}"))
    for finding in diagnose(capture).findings:
        for cure in finding.cures:
            name = f"{script.parent.parent.name}/{script.stem}: {finding.rule}: {cure.title}"
            if is_fitted(cure.code):
                expected = run(source) if "answer = " in source else 0.0
                yield name, _compare(expected, run(apply_cure(source, cure.code)))
            else:
                yield name, SKETCH


def answer_of(path, source):
    """Run a few steps of a script, given as text. Return its variable `answer`, or the text of its error."""
    # The doctor profiled the script with the device "meta" or "/GPU:0". Here, the CPU computes the answer.
    source = source.replace('device = "meta"', 'device = "cpu"').replace('"/GPU:0"', '"/CPU:0"')
    path.write_text(ast.unparse(_Shortened().visit(parse(source))))
    try:
        names = runpy.run_path(str(path), {"few": lambda values: islice(values, FEW)}, "__main__")
        _end_workers(names)
        answer = names.get("answer", 0.0)
        return float(answer) if isinstance(answer, float | int) else 0.0
    except Exception:
        return f"{source}\n{traceback.format_exc()}"
    finally:
        restore()


def _end_workers(names):
    """End the worker processes of DataLoaders. If the garbage collector ends them, PyTorch waits 5 s for each."""
    for value in names.values():
        iterator = getattr(value, "_iterator", None) if type(value).__name__ == "DataLoader" else None
        if hasattr(iterator, "_shutdown_workers"):
            iterator._shutdown_workers()


class _Shortened(ast.NodeTransformer):
    """Limits each `for` loop at the top level of a script to FEW iterations.

    The loops inside these loops are not limited.
    """

    def visit_For(self, node):
        node.iter = ast.Call(ast.Name("few", ast.Load()), [node.iter], [])
        return node

    def visit_FunctionDef(self, node):
        return node

    def visit_ClassDef(self, node):
        return node


class Stopwatch:
    """Does nothing. It replaces the stopwatch of the recorded scripts, which needs many steps."""

    def __init__(self, synchronize=None):
        pass

    def lap(self):
        pass

    def block(self, steps):
        pass

    def print_step_time(self):
        pass


def _compare(expected, answer):
    """Return "ran" if the cured script has the expected answer or needs a GPU, else what is wrong."""
    if NEEDS_GPU in str(answer):
        return "ran"
    if isinstance(expected, str) or isinstance(answer, str):
        return answer if isinstance(answer, str) else "the script itself fails: " + str(expected)
    return "ran" if abs(expected - answer) <= 1e-3 * max(1.0, abs(expected)) else f"answers {answer}, not {expected}"


def scripts_with_captures(framework, folder):
    """Yield the scripts of a framework with their captures: those in `folder`, and those recorded on a GPU."""
    for script in sorted((SCRIPTS / framework).glob("*.py")):
        if not script.stem.endswith("_healthy"):
            yield script, Capture.load(folder / f"{script.stem}.capture")
    for script in sorted((FOLDER / "cures" / framework).glob("*.py")):
        recorded = FOLDER / "recorded" / framework / f"{script.stem}.gz"
        if not script.stem.endswith("_cured") and recorded.exists():
            capture = with_excerpt(Capture.load(recorded), script)
            if capture is not None:
                yield script, capture


if __name__ == "__main__":
    framework, results = sys.argv[1], Path(sys.argv[2])
    sys.modules["stopwatch"] = SimpleNamespace(Stopwatch=Stopwatch)
    RUNNERS.get(framework, lambda: None)()
    cured = results / "cured"
    cured.mkdir(exist_ok=True)
    found = [
        result
        for script, capture in scripts_with_captures(framework, results)
        for result in results_of(script, capture, cured)
    ]
    (results / "cured.json").write_text(json.dumps(dict(found), indent=1))
