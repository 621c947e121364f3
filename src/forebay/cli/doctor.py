"""`forebay doctor train.py`: profile a training script, and report bottlenecks and cures."""

import argparse
import os
import sys
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from difflib import get_close_matches
from importlib.machinery import PathFinder
from pathlib import Path

from forebay.cli.console import report_progress
from forebay.cli.doctor_io import (
    OUTPUTS,
    check_outputs,
    find_rank_captures,
    is_capture,
    profile,
    rename_for_rank,
    verify_cure,
    write_outputs,
)
from forebay.cli.doctor_terminal import DoctorTerminal
from forebay.doctor.analyse.steps import MIN_STEPS
from forebay.doctor.capture.signal_handlers import ignore_first_sigterm
from forebay.doctor.diagnosis.compare_ranks import compare_ranks
from forebay.doctor.diagnosis.diagnose import Diagnosis, diagnose
from forebay.doctor.diagnosis.measured_settings import with_measured_settings
from forebay.doctor.model.capture import Capture
from forebay.doctor.model.redaction import describe_error, without_arguments, without_source
from forebay.doctor.predict.machines import validate_machine
from forebay.doctor.report.compare import Document, compare, read_document, validate_document
from forebay.doctor.report.document import to_document
from forebay.doctor.report.terminal import render
from forebay.doctor.report.terminal_compare import render_comparison, render_ranks
from forebay.errors import CaptureError, ForebayError

__all__ = ["add_arguments", "run"]

DESCRIPTION = """Profile a training script and report what slows it down:
the source line, its cost per step, and the gain of each cure."""
FAIL_ON = ("never", "moderate", "severe")  # values of --fail-on
OPTIONS = ("--stop", "--verify", "--fail-on", "--no-source", "--with-arguments", *(f"--{name}" for name in OUTPUTS))
EXAMPLES = """examples:
  forebay doctor train.py --epochs 1                   profile a run
  forebay doctor --html report.html -m package.train   a module; HTML report
  forebay doctor --stop --capture run.gz train.py      stop after enough steps
  forebay doctor --trace run.pftrace run.gz            read a saved capture
  forebay doctor --json now.json --fail-on severe train.py
  forebay doctor --compare before.json now.json        compare two runs
  forebay doctor run.rank0.gz run.rank1.gz             compare ranks of a run

Put options before the script. The script receives everything after its name.
Ctrl-C or SIGTERM ends the script and prints the report so far. When enough
steps were recorded, the doctor says so and writes the requested files. It
writes them again when the script ends.

--verify runs the script a second time, and hides its output, until enough
steps are timed. In this run, Forebay emulates the best cure of the main
finding at its source line, so the script computes wrong results. If the script
writes files, it writes them again with these results: first copy the files you
need. --verify also measures debug settings whose cost the first run does not
show: it runs the script once without each setting, and once unchanged.

exit codes:
  0  --fail-on is not given, or no finding reaches it
     (with --compare: the second run is not worse)
  1  a finding reaches --fail-on (with --compare: the second run is worse)
  2  the script failed or was terminated, a file could not be read or written,
     or an argument is wrong
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description, parser.epilog = DESCRIPTION, EXAMPLES
    parser.usage = "forebay doctor [options] script [arguments]\n       forebay doctor --compare A.json B.json"
    parser.add_argument("-m", dest="module", action="store_true", help="the script is a module, as in python -m")
    parser.add_argument("--stop", action="store_true", help="end the script when enough steps are measured")
    parser.add_argument(
        "--steps",
        type=_parse_at_least(MIN_STEPS + 1),
        default=50,
        metavar="N",
        help="steps to profile after the warm-up (default: 50)",
    )
    parser.add_argument(
        "--warm-up",
        type=_parse_at_least(1),
        default=10,
        metavar="N",
        help="steps to skip before profiling (default: 10)",
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the report as one self-contained HTML file")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write the diagnosis as JSON, for example for --compare"
    )
    parser.add_argument("--trace", type=Path, metavar="FILE", help="write the timeline for ui.perfetto.dev")
    parser.add_argument(
        "--capture", type=Path, metavar="FILE", help="write the capture; pass FILE as the script to read it later"
    )
    parser.add_argument(
        "--as",
        dest="device",
        default="",
        metavar="GPU",
        help="also predict the step time on another GPU: h100, a100, ...",
    )
    parser.add_argument(
        "--link",
        default="",
        metavar="LINK",
        help="also predict the step time on another link: pcie3, pcie4, pcie5 or c2c",
    )
    parser.add_argument(
        "--verify", action="store_true", help="run the script again, emulate the main cure, and compare the step times"
    )
    privacy = parser.add_mutually_exclusive_group()
    privacy.add_argument(
        "--with-arguments",
        action="store_true",
        help="include the script's arguments and the text of its error, which all reports omit by default",
    )
    privacy.add_argument("--no-source", action="store_true", help="omit source lines, and the folders of all files")
    parser.add_argument(
        "--fail-on",
        choices=FAIL_ON,
        default="never",
        help="exit with 1 if a finding has at least this severity (default: never)",
    )
    parser.add_argument(
        "--compare", nargs=2, metavar=("A", "B"), help="compare two files written by --json or --capture"
    )
    parser.add_argument("script", nargs="?", help="the script to run, or a capture to read")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the script")


def run(arguments: argparse.Namespace) -> int:
    with DoctorTerminal() as terminal:
        if arguments.compare:
            return _compare(arguments, terminal)
        check_outputs(arguments)
        validate_machine(arguments.device, arguments.link)
        if arguments.verify and arguments.script and is_capture(arguments.script):
            raise CaptureError(f"--verify runs the script again, but {arguments.script} is a capture. Pass the script.")
        examine = _compare_ranks if find_rank_captures(arguments) else _examine
        try:
            return examine(arguments, terminal)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            if isinstance(error, ForebayError) or not arguments.script or not is_capture(arguments.script):
                raise
            raise CaptureError(
                f"{arguments.script} cannot be analysed, because its values contradict each other "
                f"({describe_error(error)}). Record the run again."
            ) from error


def _examine(arguments: argparse.Namespace, terminal: DoctorTerminal) -> int:
    """Record or load one capture, and report on it."""
    capture = _load_or_record(arguments, terminal)
    if capture.rank is not None and not is_capture(arguments.script):
        rename_for_rank(arguments, capture.rank)
    if capture.ended == "terminated" and arguments.capture and not is_capture(arguments.script):
        with suppress(OSError):  # `write_outputs` reports the error
            _without_user_data(capture, arguments).save(arguments.capture)  # first, as the process may be killed soon
    # After the script, SIGTERM would end the process without a report.
    with nullcontext() if capture.ended == "terminated" else ignore_first_sigterm():
        diagnosis = _diagnose(capture, arguments)
    if arguments.verify:
        verification = verify_cure(capture, arguments, terminal)
        diagnosis = replace(with_measured_settings(diagnosis, verification.settings), verification=verification)
    with nullcontext() if capture.ended == "terminated" else ignore_first_sigterm():
        written = write_outputs(diagnosis, arguments, terminal)
        printed = terminal.report(render(diagnosis, width=terminal.width))
    code = _exit_code(diagnosis, arguments.fail_on) if written and printed else 2
    if capture.ended == "terminated" and not is_capture(arguments.script):
        terminal.close()
        os._exit(code)  # as Python does after SIGTERM, do not join threads of the script or call exit handlers
    return code


def _compare(arguments: argparse.Namespace, terminal: DoctorTerminal) -> int:
    superfluous = [f"--{name}" for name in OUTPUTS if getattr(arguments, name)]
    if arguments.script:
        superfluous.append(arguments.script)
    if superfluous:
        raise CaptureError(f"--compare only reads two files. Omit {', '.join(superfluous)}.")
    before, after = arguments.compare
    comparison = compare(_read_document(before), _read_document(after))
    terminal.report(render_comparison(comparison, (before, after), width=terminal.width))
    return int(arguments.fail_on != "never" and comparison.is_worse(arguments.fail_on))


def _read_document(path: str) -> Document:
    """Return the JSON document in a file of --json, or that of a capture."""
    if not is_capture(path):
        return read_document(path)
    return validate_document(to_document(diagnose(Capture.load(path))), path)


def _diagnose(capture: Capture, arguments: argparse.Namespace) -> Diagnosis:
    """Diagnose the capture without the user data that the options exclude."""
    with report_progress("analysing the capture"):
        return diagnose(_without_user_data(capture, arguments), device=arguments.device, link=arguments.link)


def _without_user_data(capture: Capture, arguments: argparse.Namespace) -> Capture:
    if arguments.with_arguments:
        return capture
    return (without_source if arguments.no_source else without_arguments)(capture)


def _compare_ranks(arguments: argparse.Namespace, terminal: DoctorTerminal) -> int:
    """Print a table of all ranks, then report on the slowest rank."""
    if arguments.capture:
        raise CaptureError("--capture writes one run, but several captures are given. Omit --capture.")
    captures = [Capture.load(path) for path in find_rank_captures(arguments)]
    ranks = compare_ranks([_diagnose(capture, arguments) for capture in captures])
    diagnosis = ranks.slowest.diagnosis
    written = write_outputs(diagnosis, arguments, terminal, ranks)
    printed = terminal.report(render_ranks(ranks, width=terminal.width))
    printed &= terminal.report(render(diagnosis, width=terminal.width))
    return _exit_code(diagnosis, arguments.fail_on) if written and printed else 2


def _load_or_record(arguments: argparse.Namespace, terminal: DoctorTerminal) -> Capture:
    """Load a capture, or record one by running the script."""
    if arguments.script is None:
        raise CaptureError("there is nothing to run. Pass a script, a capture, or --compare and two files.")
    if not is_capture(arguments.script):
        _check_script(arguments.script, module=arguments.module)
        _warn_of_misplaced_options(arguments, terminal)
        terminal.status(f"profiling {arguments.script}. Ctrl-C ends it and prints the report.", style="dim")
        capture = profile(
            arguments,
            lambda capture: _report_early(capture, arguments, terminal),
            lambda capture: _report_last(capture, arguments, terminal),
        )
        terminal.end_script_output()
        return capture
    if arguments.arguments:
        misplaced = " ".join(arguments.arguments)
        raise CaptureError(
            f"{arguments.script} is a capture and takes no arguments. Put {misplaced!r} before it. "
            "To compare ranks, pass only captures."
        )
    return Capture.load(arguments.script)


def _warn_of_misplaced_options(arguments: argparse.Namespace, terminal: DoctorTerminal) -> None:
    """Warn of each doctor option after the script's name, because the script receives it."""
    for option in arguments.arguments:
        if option.partition("=")[0] in OPTIONS:
            text = f"{option} follows the name of the script, so the script gets it. Options of the doctor come first."
            terminal.status(text, style="yellow")


def _report_early(capture: Capture, arguments: argparse.Namespace, terminal: DoctorTerminal) -> None:
    """Print that enough steps were recorded, and write the requested files.

    The script then continues. A rank of a distributed run writes its files only at its end, because the names of these
    files contain the rank.
    """
    text = (
        "enough steps were recorded. The script continues. Ctrl-C ends it and prints the report. "
        "The option --stop ends a script at this point."
    )
    terminal.status(text, style="dim")
    if capture.rank is not None or not any(getattr(arguments, name) for name in OUTPUTS):
        return
    try:
        write_outputs(_diagnose(capture, arguments), arguments, terminal, announces=False)
    except Exception as error:  # an error of the doctor must not end the script
        text = f"the files could not be written yet: {describe_error(error)}. Wait until the script ends."
        terminal.status(text, style="red")


def _report_last(capture: Capture, arguments: argparse.Namespace, terminal: DoctorTerminal) -> None:
    """Report on a script that does not end after SIGTERM.

    The caller then ends the process.
    """
    terminal.end_script_output()
    if capture.rank is not None:
        rename_for_rank(arguments, capture.rank)
    diagnosis = _diagnose(capture, arguments)
    write_outputs(diagnosis, arguments, terminal)
    terminal.report(render(diagnosis, width=terminal.width))


def _check_script(script: str, *, module: bool) -> None:
    """Raise CaptureError if Python cannot run the script or find the module.

    For a module, find only its top-level package, because finding the module would import the package.
    """
    path = Path(script)
    if module:
        if PathFinder.find_spec(script.partition(".")[0], [str(Path.cwd()), *sys.path]) is None:
            raise CaptureError(f"there is no module {script!r} on Python's path or in {Path.cwd()}. Check its name.")
    elif path.is_dir() and not (path / "__main__.py").is_file():
        raise CaptureError(f"{script} is a directory. Pass the script in it, or -m and the name of a module.")
    elif not path.exists():
        similar = get_close_matches(path.name, [file.name for file in path.absolute().parent.glob("*.py")], cutoff=0.7)
        hint = (
            f"Did you mean {path.with_name(similar[0])}?"
            if similar
            else "Pass its path, or -m and the name of a module."
        )
        raise CaptureError(f"there is no script {script!r}. {hint}")
    elif not os.access(path, os.R_OK):
        raise CaptureError(f"{script} cannot be read: permission denied. Change its permissions.")
    elif path.suffix == ".json":  # Python would run the file and fail with a confusing error
        raise CaptureError(f"{script} is a JSON file, not a script. Compare such files with --compare A B.")


def _exit_code(diagnosis: Diagnosis, fail_on: str) -> int:
    """Return 2 if the script failed or was terminated, 1 if --fail-on applies, else 0."""
    if diagnosis.view.capture.ended not in ("done", "interrupted"):
        return 2
    severities = {diagnosis.severity(finding) for finding in diagnosis.findings}
    failing = {"never": set(), "moderate": {"moderate", "severe"}, "severe": {"severe"}}[fail_on]
    return 1 if severities & failing else 0


def _parse_at_least(minimum: int) -> Callable[[str], int]:
    """Return a parser of whole numbers that rejects numbers below `minimum`."""

    def parse(text: str) -> int:
        if not text.isdigit() or int(text) < minimum:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {minimum}")
        return int(text)

    return parse
