"""`forebay doctor train.py`: run a script, watch it, say what holds it back."""

import argparse
import json
import sys
from pathlib import Path

from forebay.cli.console import console, talk
from forebay.doctor.analyse.verdict import Verdict, judge
from forebay.doctor.capture.script import run_module, run_script
from forebay.doctor.capture.session import Session
from forebay.doctor.capture.window import Stepping
from forebay.doctor.captured import Capture
from forebay.doctor.report.document import document_of
from forebay.doctor.report.terminal import render
from forebay.errors import CaptureError

__all__ = ["HELP", "NAME", "add_arguments", "run"]

NAME = "doctor"
HELP = "run a training script, watch it, and say what holds it back: the line, the cost, the cure"
FAIL_ON = ("never", "moderate", "severe")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-m", dest="module", action="store_true", help="the script is a module, as with python -m")
    parser.add_argument("--steps", type=int, default=50, metavar="N", help="steady steps to watch (default: 50)")
    parser.add_argument("--warm-up", type=int, default=10, metavar="N", help="steps before those (default: 10)")
    parser.add_argument("--stop", action="store_true", help="end the script once enough was seen")
    parser.add_argument(
        "--capture", type=Path, metavar="FILE", help="keep what was seen; give FILE as the script later"
    )
    parser.add_argument("--no-source", action="store_true", help="leave the text of source lines out")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the verdict as JSON")
    parser.add_argument("--fail-on", choices=FAIL_ON, default="never", help="exit 1 on a finding as bad as this")
    parser.add_argument("script", help="the script to run, or a capture to read")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="what the script is given")


def run(arguments: argparse.Namespace) -> int:
    try:
        capture = _capture(arguments)
    except CaptureError as error:
        talk().print(f"forebay doctor: {error}", style="red", markup=False)
        return 2
    if arguments.no_source:
        capture = capture.without_text()
    if arguments.capture:
        capture.save(arguments.capture)
    verdict = judge(capture)
    if arguments.json:
        arguments.json.write_text(json.dumps(document_of(verdict), indent=1) + "\n")
    console().print(render(verdict))
    return _exit_code(verdict, arguments.fail_on)


def _capture(arguments: argparse.Namespace) -> Capture:
    if _is_capture(arguments.script):
        return Capture.load(arguments.script)
    if not arguments.module and not Path(arguments.script).is_file():
        raise CaptureError(f"there is no script {arguments.script!r}: give the path of one, or -m and a module's name.")
    session = Session(
        Stepping(warm_up=arguments.warm_up, steps=arguments.steps), done=_stop if arguments.stop else _go_on
    )
    session.start()
    try:
        ended = (run_module if arguments.module else run_script)(arguments.script, arguments.arguments)
    finally:
        session.stop()
    return session.capture(arguments.script, tuple(arguments.arguments), ended=ended)


def _is_capture(path: str) -> bool:
    try:
        return Path(path).is_file() and Path(path).open("rb").read(2) == b"\x1f\x8b"
    except OSError:
        return False


def _stop() -> None:
    sys.exit(0)


def _go_on() -> None:
    """The script is let run to its end."""


def _exit_code(verdict: Verdict, fail_on: str) -> int:
    if verdict.case.capture.ended not in ("done", "interrupted"):
        return 2
    found = {verdict.severity(finding) for finding in verdict.findings}
    bad = {"never": set(), "moderate": {"moderate", "severe"}, "severe": {"severe"}}[fail_on]
    return 1 if found & bad else 0
