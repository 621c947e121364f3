"""A script watched in a process of its own: when that has ended, memory and devices are free for the next.

python -m forebay.doctor.diagnosis.subprocess_run REQUEST CAPTURE
"""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from forebay.doctor.capture.run_watched import Run, watch_run
from forebay.doctor.capture.sigterm import Terminated, terminable
from forebay.doctor.emulate.rerun import StepEnd, rerun
from forebay.doctor.model.capture import Capture
from forebay.doctor.model.emulation import Emulation
from forebay.errors import CaptureError

__all__ = ["rerun_apart", "watch_apart"]

GRACE_SECONDS = 5.0


def watch_apart(run: Run) -> Capture:
    """What was seen of the script, which speaks and is spoken to as ever."""
    return _run({"run": asdict(run)}, quiet=False)


def rerun_apart(run: Run, emulation: Emulation, end: StepEnd, *, seconds: float) -> Capture:
    """The same with a cure emulated: nobody hears the script, and it is ended after so many seconds."""
    request = {"run": asdict(run), "emulation": emulation.to_json(), "end": list(end)}
    return _run(request, quiet=True, seconds=seconds)


def _run(request: dict[str, Any], *, quiet: bool, seconds: float | None = None) -> Capture:
    with TemporaryDirectory(prefix="forebay-doctor-") as folder:
        asked, seen = Path(folder, "request.json"), Path(folder, "run.gz")
        asked.write_text(json.dumps(request), encoding="utf-8")
        command, to = [sys.executable, "-m", __name__, str(asked), str(seen)], subprocess.DEVNULL if quiet else None
        process = subprocess.Popen(command, stdin=to, stdout=to, stderr=to)
        ended = _wait(process, seconds)
        if seen.is_file():
            return Capture.load(seen)
        raise CaptureError(f"the script's process {ended} and left nothing to judge.")


def _wait(process: subprocess.Popen[bytes], seconds: float | None) -> str:
    """How it ended, in words. Ctrl-C is the script's too, which ends by itself; whoever presses it again means it."""
    for _ in range(2):
        try:
            with terminable():
                code = process.wait(seconds)
            return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        except KeyboardInterrupt:
            continue
        except Terminated:
            _terminate(process)
        except subprocess.TimeoutExpired:
            break
    process.kill()
    process.wait()
    return "was ended because it took too long" if seconds else "was ended"


def _terminate(process: subprocess.Popen[bytes]) -> None:
    """Whoever ends a whole group has told it already: it is writing down what it saw."""
    try:
        process.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        process.terminate()


def _main(asked: str, seen: str) -> None:
    request = json.loads(Path(asked).read_text(encoding="utf-8"))
    run = Run(**request["run"] | {"arguments": tuple(request["run"]["arguments"])})
    if "emulation" in request:
        kind, api, file, number = request["end"]
        capture = rerun(run, Emulation.from_json(request["emulation"]), (kind, api, file, number))
    else:
        capture = watch_run(run)
    partial = Path(f"{seen}.part")
    capture.save(partial)
    partial.rename(seen)


if __name__ == "__main__":
    _main(*sys.argv[1:])
