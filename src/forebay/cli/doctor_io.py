"""Runs the script for `forebay doctor`, and writes the output files."""

import argparse
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from forebay.cli.console import report_progress
from forebay.cli.doctor_terminal import DoctorTerminal, reserved_descriptors
from forebay.doctor.analyse.steps import has_steps
from forebay.doctor.capture.profiled_run import RunRequest, profile_run
from forebay.doctor.diagnosis.compare_ranks import RankComparison
from forebay.doctor.diagnosis.diagnose import Diagnosis, diagnose
from forebay.doctor.diagnosis.subprocess_run import profile_in_subprocess
from forebay.doctor.diagnosis.verify import verify
from forebay.doctor.model.capture import Capture
from forebay.doctor.model.emulation import EmulationKind, Verification
from forebay.doctor.report.document import to_document
from forebay.doctor.report.html import save_page
from forebay.doctor.report.perfetto import save_trace
from forebay.errors import CaptureError

__all__ = [
    "OUTPUTS",
    "check_outputs",
    "find_rank_captures",
    "is_capture",
    "profile",
    "rename_for_rank",
    "verify_cure",
    "write_outputs",
]

OUTPUTS = ("capture", "json", "html", "trace")  # the options whose value is the path of an output file


def check_outputs(arguments: argparse.Namespace) -> None:
    """Check the paths of the output files before the script runs, and make them absolute.

    Otherwise, the script could run for hours before a bad path fails. It may also change the working directory.
    """
    inputs = [path for path in find_rank_captures(arguments) or [arguments.script] if path]
    for name in OUTPUTS:
        path: Path | None = getattr(arguments, name)
        if path is None:
            continue
        if any(_is_same_file(path, each) for each in inputs):
            raise CaptureError(f"--{name} {path} would overwrite the input. Choose another file.")
        if path.is_dir():
            raise CaptureError(f"--{name} {path} is a directory. Pass the name of a file.")
        if not path.absolute().parent.is_dir():
            raise CaptureError(
                f"--{name} {path} cannot be written, because there is no directory {path.parent}. Create it first."
            )
        setattr(arguments, name, path.absolute())


def _is_same_file(path: Path, other: str) -> bool:
    """Return whether two paths lead to the same existing file, possibly through links."""
    with suppress(OSError, ValueError):  # ValueError: a null character in a path
        return path.samefile(other)
    return False


def is_capture(path: str) -> bool:
    """Return whether a file is a capture, possibly a damaged one, and not a script."""
    with suppress(OSError, ValueError), Path(path).open("rb") as file:  # ValueError: a null character in the path
        return file.read(2) == b"\x1f\x8b" or path.endswith(".gz")  # all gzip files start with these bytes
    return False


def find_rank_captures(arguments: argparse.Namespace) -> list[str]:
    """Return the paths if the user passed only captures, and several; otherwise an empty list."""
    paths = [arguments.script, *arguments.arguments] if arguments.script else []
    return paths if len(paths) > 1 and all(map(is_capture, paths)) else []


def rename_for_rank(arguments: argparse.Namespace, rank: int) -> None:
    """Add the rank to the names of the output files, because every rank writes its own."""
    for name in OUTPUTS:
        path: Path | None = getattr(arguments, name)
        if path is not None:
            setattr(arguments, name, path.with_suffix(f".rank{rank}{path.suffix}"))


def write_outputs(
    diagnosis: Diagnosis,
    arguments: argparse.Namespace,
    terminal: DoctorTerminal,
    ranks: RankComparison | None = None,
    *,
    announces: bool = True,
) -> bool:
    """Write the requested files, and return whether all of them could be written.

    With `announces`, a status line names each file.
    """
    writers: dict[str, Callable[[Path], None]] = {
        "capture": diagnosis.view.capture.save,
        "json": lambda path: _save_json(diagnosis, path, ranks),
        "html": lambda path: save_page(diagnosis, path),
        "trace": lambda path: save_trace(diagnosis.view, path),
    }
    all_written = True
    for name, save in writers.items():
        path: Path | None = getattr(arguments, name)
        if path is None:
            continue
        try:
            with reserved_descriptors():
                save(path)
            if announces:
                terminal.status(f"wrote {path}{_HOW_TO_OPEN.get(name, '')}", style="dim")
        except OSError as error:
            terminal.status(f"{path} could not be written: {error}", style="red")
            all_written = False
    return all_written


_HOW_TO_OPEN = {"html": " (open it in a browser)", "trace": " (open it in ui.perfetto.dev)"}


def _save_json(diagnosis: Diagnosis, path: Path, ranks: RankComparison | None) -> None:
    path.write_text(json.dumps(to_document(diagnosis, ranks), indent=1) + "\n", encoding="utf-8")


def profile(
    arguments: argparse.Namespace, report_early: Callable[[Capture], None], report_last: Callable[[Capture], None]
) -> Capture:
    """Profile the script and return its capture.

    With --verify, the script runs in a subprocess, so that its memory is free for the second run. Without --verify, it
    runs in this process. `report_early` receives a capture if the script continues after enough steps were recorded.
    `report_last` receives the capture if the script does not end after SIGTERM.
    """
    run = _run_request(arguments)
    if arguments.verify:
        return profile_in_subprocess(run)
    return profile_run(run, report_early, report_last, has_steps)


def verify_cure(capture: Capture, arguments: argparse.Namespace, terminal: DoctorTerminal) -> Verification:
    """Run the script again with the main cure emulated, and return the verification.

    The emulation needs the full path of its target line. So pass the recorded capture, not one that `without_source`
    returned with shorter paths.
    """

    def begin(kind: EmulationKind) -> None:
        text = f"running the script again, which also writes its files again. Emulation: {kind.description}"
        terminal.status(text, style="dim")

    with report_progress("running the script again with the cure"):
        return verify(diagnose(capture), _run_request(arguments), begin=begin)


def _run_request(arguments: argparse.Namespace) -> RunRequest:
    return RunRequest(
        arguments.script,
        tuple(arguments.arguments),
        module=arguments.module,
        stop=arguments.stop,
        warm_up=arguments.warm_up,
        steps=arguments.steps,
    )
