"""Run examples, each in a fork of one process that has already imported their frameworks.

    python -m tests.examples.run_examples FOLDER SCRIPT...

Importing the frameworks takes longer than the examples do. FOLDER receives the printed text, the records and the exit
status of each example.
"""

import os
import runpy
import sys
import traceback
from pathlib import Path

import keras  # noqa: F401  # for the forks
import tensorflow as tf  # noqa: F401  # run no operation here: a fork has no copy of the threads that it starts

import forebay  # noqa: F401


def run_in_fork(script: Path, folder: Path) -> None:
    child = os.fork()
    if child == 0:
        os._exit(_run(script, folder))  # skip the exit handlers of the parent
    _, status = os.waitpid(child, 0)
    (folder / f"{script.stem}.status").write_text(str(os.waitstatus_to_exitcode(status)))


def _run(script: Path, folder: Path) -> int:
    _redirect_output(folder / f"{script.stem}.txt")
    sys.argv = [str(script), "--quick", "--json", str(folder / "results" / f"{script.stem}.json")]
    sys.path.insert(0, str(script.parent))
    try:
        runpy.run_path(str(script), run_name="__main__")
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
    return 0


def _redirect_output(path: Path) -> None:
    with path.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)


if __name__ == "__main__":
    for script in sys.argv[2:]:
        run_in_fork(Path(script), Path(sys.argv[1]))
