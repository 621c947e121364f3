"""The files `forebay doctor` writes: checked before the script runs, named for its rank, written whatever fails."""

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

__all__ = ["OUTPUTS", "name_by_rank", "say", "settle_outputs", "verified", "watch", "write"]

OUTPUTS = ("capture", "json", "html", "trace")  # options that name a file to write


def settle_outputs(arguments: argparse.Namespace) -> None:
    """What cannot be written is told before the script runs for an hour; and it may change its folder meanwhile."""
    for name in OUTPUTS:
        path: Path | None = getattr(arguments, name)
        if path is None:
            continue
        if arguments.script and path.absolute() == Path(arguments.script).absolute():
            raise CaptureError(f"--{name} {path} would overwrite what is to be read: give the name of another file.")
        if path.is_dir():
            raise CaptureError(f"--{name} {path} is a directory: give the name of a file in it.")
        if not path.absolute().parent.is_dir():
            raise CaptureError(
                f"--{name} {path} cannot be written: there is no directory {path.parent}. Make it first."
            )
        setattr(arguments, name, path.absolute())


def name_by_rank(arguments: argparse.Namespace, rank: int) -> None:
    """All ranks of a run were given the same names: each writes files of its own."""
    for name in OUTPUTS:
        path: Path | None = getattr(arguments, name)
        if path is not None:
            setattr(arguments, name, path.with_suffix(f".rank{rank}{path.suffix}"))


def write(diagnosis: Diagnosis, arguments: argparse.Namespace, ranks: RankComparison | None = None) -> bool:
    """Every file that was asked for; one that fails does not take the others with it."""
    ways: dict[str, Callable[[Path], None]] = {
        "capture": diagnosis.view.capture.save,
        "json": lambda path: _save_json(diagnosis, path, ranks),
        "html": lambda path: save_page(diagnosis, path),
        "trace": lambda path: save_trace(diagnosis.view, path),
    }
    written = True
    for name, save in ways.items():
        path: Path | None = getattr(arguments, name)
        if path is None:
            continue
        try:
            save(path)
            say(f"wrote {path}{_OPEN_WITH.get(name, '')}", style="dim")
        except OSError as error:
            say(f"{path} could not be written: {error}", style="red")
            written = False
    return written


_OPEN_WITH = {"html": " (open it in a browser)", "trace": " (open it in ui.perfetto.dev)"}


def say(words: str, *, style: str) -> None:
    error_console().print(
        f"forebay doctor: {words}", style=style, markup=False, soft_wrap=True
    )  # a path stays one word


def _save_json(diagnosis: Diagnosis, path: Path, ranks: RankComparison | None) -> None:
    path.write_text(json.dumps(to_document(diagnosis, ranks), indent=1) + "\n", encoding="utf-8")


def watch(arguments: argparse.Namespace) -> Capture:
    """Apart where it is to be run again, for a second run needs the memory that the first has taken."""
    return (profile_in_subprocess if arguments.verify else profile_run)(_run_of(arguments))


def verified(diagnosis: Diagnosis, arguments: argparse.Namespace, say: Callable[[str], None]) -> Diagnosis:
    """The same verdict with what came of trying its cure."""

    def begin(kind: EmulationKind) -> None:
        say(f"running the script again, files it writes and all, with {kind.description}")

    return replace(diagnosis, verification=verify(diagnosis, _run_of(arguments), begin=begin))


def _run_of(arguments: argparse.Namespace) -> RunRequest:
    return RunRequest(
        arguments.script,
        tuple(arguments.arguments),
        module=arguments.module,
        stop=arguments.stop,
        warm_up=arguments.warm_up,
        steps=arguments.steps,
    )
