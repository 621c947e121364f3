"""Runs of the script and output files of `forebay doctor`."""

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from forebay.cli.console import error_console
from forebay.doctor.capture.profiled_run import RunRequest, profile_run
from forebay.doctor.diagnosis.compare_ranks import RankComparison
from forebay.doctor.diagnosis.diagnose import Diagnosis
from forebay.doctor.diagnosis.subprocess_run import profile_in_subprocess
from forebay.doctor.diagnosis.verify import verify
from forebay.doctor.model.capture import Capture
from forebay.doctor.model.emulation import EmulationKind
from forebay.doctor.report.document import to_document
from forebay.doctor.report.html import save_page
from forebay.doctor.report.perfetto import save_trace
from forebay.errors import CaptureError

__all__ = [
    "OUTPUTS",
    "check_outputs",
    "print_status",
    "profile",
    "rename_for_rank",
    "verify_cure",
    "write_outputs",
]

OUTPUTS = ("capture", "json", "html", "trace")  # options that name a file to write


def check_outputs(arguments: argparse.Namespace) -> None:
    """Check the paths of the output files before the script runs, and make them absolute.

    The script may run for hours before a bad path fails, and it may change the working directory.
    """
    for name in OUTPUTS:
        path: Path | None = getattr(arguments, name)
        if path is None:
            continue
        if arguments.script and path.absolute() == Path(arguments.script).absolute():
            raise CaptureError(f"--{name} {path} would overwrite the input. Choose another file.")
        if path.is_dir():
            raise CaptureError(f"--{name} {path} is a directory. Pass the name of a file.")
        if not path.absolute().parent.is_dir():
            raise CaptureError(
                f"--{name} {path} cannot be written, because there is no directory {path.parent}. Create it first."
            )
        setattr(arguments, name, path.absolute())


def rename_for_rank(arguments: argparse.Namespace, rank: int) -> None:
    """Add the rank to the names of the output files, so that ranks write different files."""
    for name in OUTPUTS:
        path: Path | None = getattr(arguments, name)
        if path is not None:
            setattr(arguments, name, path.with_suffix(f".rank{rank}{path.suffix}"))


def write_outputs(diagnosis: Diagnosis, arguments: argparse.Namespace, ranks: RankComparison | None = None) -> bool:
    """Write the requested files, and return whether all of them could be written."""
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
            save(path)
            print_status(f"wrote {path}{_HOW_TO_OPEN.get(name, '')}", style="dim")
        except OSError as error:
            print_status(f"{path} could not be written: {error}", style="red")
            all_written = False
    return all_written


_HOW_TO_OPEN = {"html": " (open it in a browser)", "trace": " (open it in ui.perfetto.dev)"}


def print_status(text: str, *, style: str) -> None:
    """Print one line to stderr."""
    # soft_wrap keeps long paths on one line, so that they can be copied.
    error_console().print(f"forebay doctor: {text}", style=style, markup=False, soft_wrap=True)


def _save_json(diagnosis: Diagnosis, path: Path, ranks: RankComparison | None) -> None:
    path.write_text(json.dumps(to_document(diagnosis, ranks), indent=1) + "\n", encoding="utf-8")


def profile(arguments: argparse.Namespace) -> Capture:
    """Profile the script.

    With --verify it runs in a subprocess, whose end frees its memory for the second run.
    """
    return (profile_in_subprocess if arguments.verify else profile_run)(_run_request(arguments))


def verify_cure(diagnosis: Diagnosis, arguments: argparse.Namespace, report: Callable[[str], None]) -> Diagnosis:
    """Run the script with the main cure emulated; return the diagnosis with the result."""

    def begin(kind: EmulationKind) -> None:
        report(f"running the script again, which also writes its files again. Emulation: {kind.description}")

    return replace(diagnosis, verification=verify(diagnosis, _run_request(arguments), begin=begin))


def _run_request(arguments: argparse.Namespace) -> RunRequest:
    return RunRequest(
        arguments.script,
        tuple(arguments.arguments),
        module=arguments.module,
        stop=arguments.stop,
        warm_up=arguments.warm_up,
        steps=arguments.steps,
    )
