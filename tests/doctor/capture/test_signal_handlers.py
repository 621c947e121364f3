"""A SIGTERM during a report does not lose the report; the next SIGTERM ends the process."""

import signal

import pytest
from tests.support.run_python import run_python

SCRIPT = """
import os, signal
from forebay.doctor.capture.signal_handlers import ignore_first_sigterm
with ignore_first_sigterm():
    {signals}
    print("reported", flush=True)
{after}
"""
KILL = "os.kill(os.getpid(), signal.SIGTERM)"


@pytest.mark.parametrize(
    ("signals", "after", "printed", "code"),
    [
        (KILL, "", "reported\n", 0),
        (KILL, KILL, "reported\n", -signal.SIGTERM),
        ("pass", KILL, "reported\n", -signal.SIGTERM),
        (f"{KILL}; {KILL}", "", "", -signal.SIGTERM),
        ("signal.signal(signal.SIGTERM, signal.SIG_IGN)", "", "reported\n", 0),
    ],
)
def test_the_first_sigterm_of_a_report_is_ignored(tmp_path, signals, after, printed, code):
    done = run_python("-c", SCRIPT.format(signals=signals, after=after), cwd=tmp_path)
    assert (done.stdout, done.returncode) == (printed, code)


def test_a_handler_of_the_process_stays():
    code = SCRIPT.format(signals=KILL, after="print(signal.getsignal(signal.SIGTERM) is signal.SIG_IGN)").replace(
        "with ", "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nwith ", 1
    )
    assert run_python("-c", code).stdout == "reported\nTrue\n"
