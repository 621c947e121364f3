"""Runs examples, each in a fork of one process that has imported their frameworks: importing takes longer than they do.

python -m tests.examples.run_examples FOLDER SCRIPT...    keeps of each what it printed, its records and its exit status
"""

import os
import runpy
import sys
import traceback
from pathlib import Path

import keras  # noqa: F401  # for those who are forked
import tensorflow as tf  # noqa: F401  # nothing of it runs here: its threads would be missing in a fork

import forebay  # noqa: F401


def keep(script: Path, folder: Path) -> None:
    child = os.fork()
    if child == 0:
        os._exit(_run(script, folder))  # nothing of the parent's is ended twice
    _, status = os.waitpid(child, 0)
    (folder / f"{script.stem}.status").write_text(str(os.waitstatus_to_exitcode(status)))


def _run(script: Path, folder: Path) -> int:
    _print_to(folder / f"{script.stem}.txt")
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


def _print_to(path: Path) -> None:
    with path.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)


if __name__ == "__main__":
    for script in sys.argv[2:]:
        keep(Path(script), Path(sys.argv[1]))
