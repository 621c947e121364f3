"""Run public training scripts: plain, with the doctor, and with a cure.

    python -m tests.wild.run --checkouts FOLDER --out FOLDER [--turns N] [NAME ...]

FOLDER of the checkouts has owner+name or owner/name for each repository of corpus.json; nothing is downloaded. For each
script, the runner writes OUT/NAME.json, NAME.doctor.json, NAME.gz (the capture) and NAME.txt (the output and the
report). Run it in the root of the repository, with `src` on PYTHONPATH and with the frameworks installed.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.wild.edits import Edit
from tests.wild.measure import (
    compare,
    profiling_cost,
    read_marks,
    reported_share,
    sampled_share,
    step_seconds,
    summarise,
)
from tests.wild.scripts import FOLDER, Script, load_cure, load_scripts

from forebay.doctor.model.capture import Capture

# The script gets these environment variables of the runner, and no others.
INHERITED_VARIABLES = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "XLA_PYTHON_CLIENT_PREALLOCATE")
SOURCE = FOLDER.parents[1] / "src"


@dataclass(frozen=True, slots=True)
class Runner:
    """Where scripts come from, where results go, and how long and how often a script runs."""

    checkouts: Path
    out: Path
    turns: int
    timeout_seconds: float
    steps: int  # a timed run ends after this many steps; 0: when the script ends

    def run(self, script: Script) -> dict[str, Any]:
        """Diagnose a script, then run the script in each way in turn; return the results."""
        ended = self._diagnose(script)
        path = self.out / f"{script.name}.doctor.json"
        result: dict[str, Any] = {"name": script.name, "framework": script.framework, "ended": ended, "verdict": None}
        if path.exists():
            document = json.loads(path.read_text())
            capture = Capture.load(self.out / f"{script.name}.gz")
            shares = {"reported": reported_share(document), "sampled": sampled_share(capture)}
            result |= {"verdict": summarise(document), "share_with_line": shares}
        if self.turns:
            result |= self._measure(script, result["verdict"])
        return result

    def _diagnose(self, script: Script) -> str:
        """Run the script with the doctor and without marks."""
        folder = self._prepare(script, "doctor")
        options = ["--json", f"{self.out / script.name}.doctor.json", "--capture", f"{self.out / script.name}.gz"]
        return self._start(script, folder, options, log=self.out / f"{script.name}.txt")

    def _measure(self, script: Script, verdict: dict[str, Any] | None) -> dict[str, Any]:
        """Run the script in turn: plain, with the doctor, and with its cure if there is one."""
        cure = load_cure(script.name)
        plain, costs, cured = [], [], []
        for _ in range(self.turns):
            marks = self._timed(script, "plain")
            plain.append(step_seconds(marks))
            profiled = self._timed(script, "profiled", with_doctor=True)
            if (capture := self.out / f"{script.name}.profiled.gz").exists():
                costs.append(profiling_cost(marks, profiled, Capture.load(capture)))
                capture.unlink()
            if cure:
                cured.append(step_seconds(self._timed(script, "cured", edits=cure[1])))
        result: dict[str, Any] = {"plain_seconds": plain, "profiling_cost": costs, "cure": None}
        if cure and all(plain) and all(cured):
            result["cure"] = {"rule": cure[0], **compare(plain, cured, verdict or {})}
        return result

    def _timed(
        self, script: Script, name: str, *, edits: tuple[Edit, ...] = (), with_doctor: bool = False
    ) -> list[int]:
        """Run the script with marks and return them."""
        folder = self._prepare(script, name, edits=edits, is_marked=True)
        options = ["--capture", f"{self.out / script.name}.profiled.gz"] if with_doctor else None
        clock = folder / "step_clock.json"
        environment = {"STEP_CLOCK_FILE": str(clock), "STEP_CLOCK_STEPS": str(0 if with_doctor else self.steps)}
        self._start(script, folder, options, log=folder / "log.txt", environment=environment)
        return read_marks(clock)

    def _prepare(self, script: Script, name: str, *, edits: tuple[Edit, ...] = (), is_marked: bool = False) -> Path:
        folder = self.out / "work" / f"{script.name}.{name}"
        script.prepare(self.checkouts, folder, edits=edits, is_marked=is_marked)
        return folder

    def _start(
        self,
        script: Script,
        folder: Path,
        options: list[str] | None,
        *,
        log: Path,
        environment: dict[str, str] | None = None,
    ) -> str:
        """Run the script in its folder, with the doctor if there are options; return how it ended."""
        doctor = [] if options is None else ["-m", "forebay", "doctor", *options]
        command = [sys.executable, *doctor, script.file_name, *script.recipe.arguments]
        variables = {
            name: os.environ[name] for name in INHERITED_VARIABLES if name in os.environ
        } | script.recipe.environment
        variables |= {"PYTHONPATH": str(SOURCE), "TF_CPP_MIN_LOG_LEVEL": "2", "COLUMNS": "110"} | (environment or {})
        with log.open("w") as output:
            process = subprocess.Popen(
                command, cwd=folder, env=variables, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
            return _wait(process, self.timeout_seconds)


def _wait(process: subprocess.Popen[bytes], seconds: float) -> str:
    """Wait for the end of a script. After too long, let the doctor write its report, then kill the script."""
    try:
        return f"exit {process.wait(seconds)}"
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    return f"stopped after {seconds:.0f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="scripts to run (default: all that have a recipe)")
    parser.add_argument("--checkouts", type=Path, required=True, help="folder of git repositories")
    parser.add_argument("--out", type=Path, required=True, help="folder for the results; must be outside of git")
    parser.add_argument("--turns", type=int, default=3, help="timed runs of each kind (0: only the diagnosis)")
    parser.add_argument("--timeout", type=float, default=150, help="time limit of each run, in seconds")
    parser.add_argument("--steps", type=int, default=0, help="end a timed run after this many steps")
    parts = ["develop", "held back", "second draw", "third draw", "fourth draw"]
    parser.add_argument("--part", default="develop", choices=parts)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    out = arguments.out.resolve()
    runner = Runner(arguments.checkouts.resolve(), out, arguments.turns, arguments.timeout, arguments.steps)
    for script in load_scripts(arguments.names, arguments.part):
        start = time.monotonic()
        result = runner.run(script)
        (out / f"{script.name}.json").write_text(json.dumps(result, indent=2) + "\n")
        verdict = result["verdict"] or {}
        print(f"{script.name}: {result['ended']}, {verdict.get('rule')}, {time.monotonic() - start:.0f} s", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
