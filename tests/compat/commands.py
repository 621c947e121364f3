"""Run commands as a user does: `python -m forebay ...` in a separate process."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.support.run_python import TERMINAL, Done, run_python

__all__ = ["MAX_SECONDS", "ROOT", "Done", "forebay", "forebay_each", "python", "words_of"]

ROOT = Path(__file__).parents[2]  # root of the repository; worker processes import `tests` from there
MAX_SECONDS = 300
# A report must not depend on the terminal, on the GPUs or on the settings of the caller.
PLAIN = TERMINAL | {
    "TERM": "dumb",
    "CUDA_VISIBLE_DEVICES": "",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "JAX_PLATFORMS": "cpu",
}
# Runs `python -m forebay` once for each list of arguments.
_EACH = """
import contextlib, io, json, runpy, sys
done = []
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["forebay", *arguments]
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            runpy.run_module("forebay", run_name="__main__")
        except SystemExit as end:
            code = end.code or 0
    done.append([code, out.getvalue(), err.getvalue()])
json.dump(done, sys.stdout)
"""


def forebay(*arguments: str | Path, cwd: Path = ROOT, **settings: str) -> Done:
    """Run a command with a timeout of a few minutes."""
    return python("-m", "forebay", *arguments, cwd=cwd, **settings)


def forebay_each(calls: Sequence[Sequence[str | Path]], *, cwd: Path = ROOT) -> list[Done]:
    """Run several commands in one process, because each start takes longer than most commands."""
    plain = [[str(argument) for argument in call] for call in calls]
    done = python("-c", _EACH, json.dumps(plain), cwd=cwd)
    assert done.returncode == 0, done.stderr
    ended = zip(plain, json.loads(done.stdout), strict=True)
    return [subprocess.CompletedProcess(call, *result) for call, result in ended]


def python(*arguments: str | Path, cwd: Path = ROOT, **settings: str) -> Done:
    return run_python(*arguments, cwd=cwd, seconds=MAX_SECONDS, **PLAIN | settings)


def words_of(text: str) -> list[list[str]]:
    """Split each line of a report into words, so that column widths do not matter."""
    return [line.split() for line in text.splitlines() if line.split()]
