"""Profiling in a subprocess, which releases memory and devices when it ends.

The subprocess runs `python -m forebay.doctor.diagnosis.subprocess_run REQUEST CAPTURE`. It reads the request from the
JSON file REQUEST and writes the capture to CAPTURE, or a `TimedRun` for a script with the code of a cure.
"""

import json
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from forebay.doctor.analyse.steps import has_steps
from forebay.doctor.capture.profiled_run import RunRequest, profile_run
from forebay.doctor.capture.signal_handlers import SigtermReceived, raise_on_sigterm
from forebay.doctor.capture.sigterm_deadline import GRACE_SECONDS
from forebay.doctor.diagnosis.applied_code import run_applied
from forebay.doctor.emulate.rerun import StepEnd, rerun
from forebay.doctor.model.capture import Capture
from forebay.doctor.model.debug_settings import variable_of
from forebay.doctor.model.emulation import Emulation, EmulationKind
from forebay.errors import CaptureError

__all__ = ["TimedRun", "profile_in_subprocess", "removed_variable", "rerun_in_subprocess", "time_in_subprocess"]


def profile_in_subprocess(run: RunRequest) -> Capture:
    """Profile a script, which uses the standard input and output of this process."""
    return _run({"run": asdict(run)}, quiet=False)


def rerun_in_subprocess(run: RunRequest, emulation: Emulation, end: StepEnd, *, seconds: float) -> Capture:
    """Profile a script with an emulated cure for at most `seconds`, and discard its output."""
    request = {"run": asdict(run), "emulation": emulation.to_json(), "end": list(end)}
    return _run(request, quiet=True, seconds=seconds, without=removed_variable(emulation))


@dataclass(frozen=True, slots=True)
class TimedRun:
    """The result of running a script with the code of a cure."""

    step_seconds: float | None  # None if the script made too few steps
    ended: str  # how the script ended, as in `Capture.ended`


def time_in_subprocess(run: RunRequest, emulation: Emulation, *, seconds: float) -> TimedRun:
    """Run a script with the code of a cure for at most `seconds`, and discard its output."""
    request = {"run": asdict(run), "emulation": emulation.to_json()}
    with _finished(request, quiet=True, seconds=seconds) as path:
        return TimedRun(**json.loads(path.read_text(encoding="utf-8")))


def removed_variable(emulation: Emulation) -> str:
    """Return the environment variable that an emulation unsets, or ""."""
    variable = variable_of(emulation.setting)
    return variable if emulation.kind is EmulationKind.OFF and variable in os.environ else ""


def _run(request: dict[str, Any], *, quiet: bool, seconds: float | None = None, without: str = "") -> Capture:
    """Run the subprocess for at most `seconds`, and return its capture."""
    with _finished(request, quiet=quiet, seconds=seconds, without=without) as path:
        return Capture.load(path)


@contextmanager
def _finished(
    request: dict[str, Any], *, quiet: bool, seconds: float | None = None, without: str = ""
) -> Iterator[Path]:
    """Run the subprocess for at most `seconds`, and give the path of the file that it wrote.

    `without` names an environment variable that the subprocess does not get.
    """
    with TemporaryDirectory(prefix="forebay-doctor-") as folder:
        request_path, capture_path = Path(folder, "request.json"), Path(folder, "run.gz")
        request_path.write_text(json.dumps(request), encoding="utf-8")
        command = [sys.executable, "-m", __name__, str(request_path), str(capture_path)]
        stdio = subprocess.DEVNULL if quiet else None
        environment = {name: value for name, value in os.environ.items() if name != without}
        process = subprocess.Popen(command, stdin=stdio, stdout=stdio, stderr=stdio, env=environment)
        ended = _wait(process, seconds)
        if not capture_path.is_file():
            raise CaptureError(
                f"the process of the script {ended} and wrote no capture. Run the "
                "script without the doctor to find the cause."
            )
        yield capture_path


def _wait(process: subprocess.Popen[bytes], seconds: float | None) -> str:
    """Wait until the process ends, and return how it ended.

    After Ctrl-C, this function waits again, because the terminal sends Ctrl-C to the script, too. After SIGTERM, it
    terminates the process and waits again. It kills the process after a second Ctrl-C or SIGTERM, or if a wait takes
    longer than `seconds`.
    """
    is_terminated = False
    try:
        for _ in range(2):
            try:
                with raise_on_sigterm():
                    if is_terminated:
                        _terminate(process)
                    code = process.wait(seconds)
                return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
            except KeyboardInterrupt:
                continue
            except SigtermReceived:
                is_terminated = True
            except subprocess.TimeoutExpired:
                return "was killed because it took too long"
        return "was killed after a second signal"
    finally:
        process.kill()  # does nothing if the process has ended
        process.wait()


def _terminate(process: subprocess.Popen[bytes]) -> None:
    """Send SIGTERM to the process, unless it ends within GRACE_SECONDS.

    A script that received SIGTERM itself usually ends within this time.
    """
    try:
        process.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        process.terminate()


def _main(request_path: str, capture_path: str) -> None:
    """Profile the requested script in this process, and write the capture."""
    request = json.loads(Path(request_path).read_text(encoding="utf-8"))
    run = RunRequest(**request["run"] | {"arguments": tuple(request["run"]["arguments"])})
    emulation = Emulation.from_json(request["emulation"]) if "emulation" in request else None
    if emulation is not None and emulation.kind is EmulationKind.APPLIED:
        timed = TimedRun(*run_applied(run, emulation))
        part = Path(f"{capture_path}.part")
        part.write_text(json.dumps(asdict(timed)), encoding="utf-8")
        part.rename(capture_path)
        for child in multiprocessing.active_children():
            child.terminate()
        os._exit(0)  # do not wait for threads of the script, whose loop has ended early
    if emulation is not None:
        kind, api, file, number = request["end"]
        capture = rerun(run, emulation, (kind, api, file, number))
    else:
        capture = profile_run(run, has_steps=has_steps)
    partial_path = Path(f"{capture_path}.part")  # the parent process must not read an incomplete file
    capture.save(partial_path)
    partial_path.rename(capture_path)
    if capture.ended == "terminated":
        os._exit(0)  # do not join the threads of the script: without the doctor, SIGTERM does not join them either


if __name__ == "__main__":
    _main(*sys.argv[1:])
