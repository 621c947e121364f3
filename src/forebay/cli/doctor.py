"""`forebay doctor train.py`: run a script, watch it, say what holds it back."""

import argparse
import sys
from collections.abc import Callable
from contextlib import suppress
from difflib import get_close_matches
from functools import partial
from importlib.machinery import PathFinder
from pathlib import Path

from forebay.cli.console import result_console
from forebay.cli.doctor_io import OUTPUTS, name_by_rank, say, settle_outputs, verified, watch, write
from forebay.doctor.analyse.steps import FEWEST_STEPS
from forebay.doctor.diagnosis.compare_ranks import compare_ranks
from forebay.doctor.diagnosis.diagnose import Diagnosis, diagnose
from forebay.doctor.model.capture import Capture
from forebay.doctor.predict.machines import validate_machine
from forebay.doctor.report.compare import Document, compare, read_document
from forebay.doctor.report.document import to_document
from forebay.doctor.report.terminal import render
from forebay.doctor.report.terminal_compare import render_comparison
from forebay.doctor.report.terminal_ranks import render_ranks
from forebay.errors import CaptureError

__all__ = ["HELP", "NAME", "add_arguments", "run"]

NAME = "doctor"
HELP = "run a training script, watch it, and say what holds it back: the line, the cost, the cure"
DESCRIPTION = """Run a training script, watch it, and say what holds it back:
which line, what it costs in a step, and what each cure would win."""
FAIL_ON = ("never", "moderate", "severe")
EXAMPLES = """examples:
  forebay doctor train.py --epochs 1                   watch a run, then tell
  forebay doctor --html report.html -m package.train   a module; a page to share
  forebay doctor --stop --capture run.gz train.py      end once enough was seen
  forebay doctor --trace run.pftrace run.gz            look at it again later
  forebay doctor --json now.json --fail-on severe train.py
  forebay doctor --compare before.json now.json        what became of it
  forebay doctor run.rank0.gz run.rank1.gz             ranks of one run together

Options stand before the script; what stands after it is the script's own.
Ctrl-C or SIGTERM ends the script and gives the report so far.

--verify runs the script a second time, unheard, until enough steps were timed,
and does on the accused line what its cure would do. What the script computes
then is stale or wrong, and if it writes files, it writes them again, with that:
keep a copy of what must not be lost.

exit codes:
  0  nothing as bad as --fail-on was found; with --compare, nothing came
  1  something was
  2  the script failed, or there was nothing to run or to read
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description, parser.epilog = DESCRIPTION, EXAMPLES
    parser.usage = "forebay doctor [options] script [arguments]\n       forebay doctor --compare A.json B.json"
    parser.add_argument("-m", dest="module", action="store_true", help="the script is a module, as with python -m")
    parser.add_argument("--stop", action="store_true", help="end the script once enough was seen")
    parser.add_argument(
        "--steps", type=_at_least(FEWEST_STEPS + 1), default=50, metavar="N", help="steady steps to watch (default: 50)"
    )
    parser.add_argument(
        "--warm-up", type=_at_least(1), default=10, metavar="N", help="steps before those (default: 10)"
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the report as one page that needs no network")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the verdict as JSON, for --compare and others")
    parser.add_argument("--trace", type=Path, metavar="FILE", help="write the timeline for ui.perfetto.dev")
    parser.add_argument("--capture", type=Path, metavar="FILE", help="keep what was seen; give FILE as script later")
    parser.add_argument(
        "--as", dest="device", default="", metavar="GPU", help="what a step would take on an h100, a100, ..."
    )
    parser.add_argument(
        "--link", default="", metavar="LINK", help="what it would take behind pcie3, pcie4, pcie5 or c2c"
    )
    parser.add_argument("--verify", action="store_true", help="run it again with the main cure emulated, and compare")
    parser.add_argument("--no-source", action="store_true", help="leave the text of source lines out")
    parser.add_argument("--fail-on", choices=FAIL_ON, default="never", help="exit 1 on a finding as bad as this")
    parser.add_argument("--compare", nargs=2, metavar=("A", "B"), help="compare what --json wrote of two runs")
    parser.add_argument("script", nargs="?", help="the script to run, or a capture to read")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="what the script is given")


def run(arguments: argparse.Namespace) -> int:
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a bar that a terminal cannot show must not take the report with it
    if arguments.compare:
        return _compare(arguments)
    settle_outputs(arguments)
    validate_machine(arguments.device, arguments.link)
    if arguments.verify and arguments.script and _is_capture(arguments.script):
        raise CaptureError(f"--verify runs the script again, and {arguments.script} is a capture: give the script.")
    if _captures(arguments):
        return _compare_ranks(arguments)
    capture = _capture(arguments)
    if capture.rank is not None and not _is_capture(arguments.script):
        name_by_rank(arguments, capture.rank)
    diagnosis = _judge(capture, arguments)
    if arguments.verify:
        diagnosis = verified(diagnosis, arguments, partial(say, style="dim"))
    written = write(diagnosis, arguments)
    result_console().print(render(diagnosis, width=result_console().width))
    return _exit_code(diagnosis, arguments.fail_on) if written else 2


def _compare(arguments: argparse.Namespace) -> int:
    given = [f"--{name}" for name in OUTPUTS if getattr(arguments, name)] + (
        [arguments.script] * bool(arguments.script)
    )
    if given:
        raise CaptureError(f"--compare reads two files and runs nothing: leave {', '.join(given)} out.")
    before, after = arguments.compare
    comparison = compare(_read(before), _read(after))
    result_console().print(render_comparison(comparison, (before, after), width=result_console().width))
    return int(arguments.fail_on != "never" and comparison.is_worse(arguments.fail_on))


def _read(path: str) -> Document:
    """A verdict, or a capture that is judged now."""
    return to_document(diagnose(Capture.load(path))) if _is_capture(path) else read_document(path)


def _judge(capture: Capture, arguments: argparse.Namespace) -> Diagnosis:
    told = capture.without_text() if arguments.no_source else capture
    return diagnose(told, device=arguments.device, link=arguments.link)


def _captures(arguments: argparse.Namespace) -> list[str]:
    """Where several captures were given: those of the ranks of one run."""
    given = [arguments.script, *arguments.arguments] if arguments.script else []
    return given if len(given) > 1 and all(map(_is_capture, given)) else []


def _compare_ranks(arguments: argparse.Namespace) -> int:
    """A row for each, and the verdict on the slowest, which is also what files are written of."""
    if arguments.capture:
        raise CaptureError("--capture keeps what was seen of one run: leave it out where several captures are read.")
    captures = [Capture.load(path) for path in _captures(arguments)]
    ranks = compare_ranks([_judge(each, arguments) for each in captures])
    diagnosis = ranks.slowest.diagnosis
    written = write(diagnosis, arguments, ranks)
    result_console().print(render_ranks(ranks, width=result_console().width))
    result_console().print(render(diagnosis, width=result_console().width))
    return _exit_code(diagnosis, arguments.fail_on) if written else 2


def _capture(arguments: argparse.Namespace) -> Capture:
    """What was seen: of a run now, or of one that was kept."""
    if arguments.script is None:
        raise CaptureError("there is nothing to run: give a script, a capture, or --compare and two files.")
    if not _is_capture(arguments.script):
        _check_script(arguments.script, module=arguments.module)
        return watch(arguments)
    if arguments.arguments:
        late = " ".join(arguments.arguments)
        raise CaptureError(f"{arguments.script} is a capture and takes no arguments: put {late!r} in front of it.")
    return Capture.load(arguments.script)


def _check_script(script: str, *, module: bool) -> None:
    path = Path(script)
    if module:
        if PathFinder.find_spec(script.partition(".")[0], [str(Path.cwd()), *sys.path]) is None:
            raise CaptureError(f"there is no module {script!r} on Python's path or in {Path.cwd()}.")
    elif path.is_dir():
        raise CaptureError(f"{script} is a directory: give the script in it, or -m and a module's name.")
    elif not path.is_file():
        near = get_close_matches(path.name, [file.name for file in path.absolute().parent.glob("*.py")], n=1)
        hint = f"is it {path.with_name(near[0])}?" if near else "give the path of one, or -m and a module's name."
        raise CaptureError(f"there is no script {script!r}: {hint}")


def _is_capture(path: str) -> bool:
    with suppress(OSError), Path(path).open("rb") as file:
        return file.read(2) == b"\x1f\x8b"  # compressed, which no script is
    return False


def _exit_code(diagnosis: Diagnosis, fail_on: str) -> int:
    if diagnosis.view.capture.ended not in ("done", "interrupted"):
        return 2
    found = {diagnosis.severity(finding) for finding in diagnosis.findings}
    bad = {"never": set(), "moderate": {"moderate", "severe"}, "severe": {"severe"}}[fail_on]
    return 1 if found & bad else 0


def _at_least(least: int) -> Callable[[str], int]:
    def whole_number(text: str) -> int:
        if not text.isdigit() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {least}")
        return int(text)

    return whole_number
