"""The runs `forebay doctor` makes of a script: the one it watches, and with --verify one with a cure emulated."""

import argparse
from collections.abc import Callable
from dataclasses import replace

from forebay.doctor.analyse.verdict import Verdict
from forebay.doctor.apart import watch_apart
from forebay.doctor.capture.running import Run, watch_run
from forebay.doctor.captured import Capture
from forebay.doctor.emulation import Way
from forebay.doctor.verify import verify

__all__ = ["verified", "watch"]


def watch(arguments: argparse.Namespace) -> Capture:
    """Apart where it is to be run again, for a second run needs the memory that the first has taken."""
    return (watch_apart if arguments.verify else watch_run)(_run_of(arguments))


def verified(verdict: Verdict, arguments: argparse.Namespace, say: Callable[[str], None]) -> Verdict:
    """The same verdict with what came of trying its cure."""

    def begin(way: Way) -> None:
        say(f"running the script again, files it writes and all, with {way.in_words}")

    return replace(verdict, verification=verify(verdict, _run_of(arguments), begin=begin))


def _run_of(arguments: argparse.Namespace) -> Run:
    return Run(
        arguments.script,
        tuple(arguments.arguments),
        module=arguments.module,
        stop=arguments.stop,
        warm_up=arguments.warm_up,
        steps=arguments.steps,
    )
