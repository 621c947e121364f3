"""What the end of a worker process means, in words."""

import signal

__all__ = ["describe_exit"]

_GUARD = (
    "What it said is on stderr. If this script starts work at its top level, put that under "
    '`if __name__ == "__main__":`, since every worker imports the script first'
)
_CRASH = "Native code crashed: the Python lines it was called from are on stderr"
_SIGNALS = {
    "SIGKILL": "The kernel's out-of-memory killer does this: look at `dmesg` and the container's memory limit, then "
    "use fewer workers or smaller batches",
    "SIGBUS": "Shared memory ran out: look at the machine's and the container's memory limits",
    **dict.fromkeys(("SIGSEGV", "SIGABRT", "SIGFPE", "SIGILL"), _CRASH),
}
_OUTSIDE = "Its pool does this after an interrupted call; otherwise somebody ended it from outside"
_EXIT = 'Something in it called os._exit(): run it with where="thread" to find the place'


def describe_exit(exit_code: int | None, *, ready: bool) -> str:
    """How a process ended and where to look, from its `multiprocessing` exit code.

    >>> describe_exit(-11, ready=True)
    'was ended by SIGSEGV. Native code crashed: the Python lines it was called from are on stderr'
    """
    if exit_code is None:
        return "ended, and something else in this program took its exit code. What it said is on stderr"
    if exit_code < 0:
        name = _signal_name(-exit_code)
        return f"was ended by {name}. {_SIGNALS.get(name, _OUTSIDE)}"
    return f"ended with exit code {exit_code}. {_EXIT}" if ready else f"ended with exit code {exit_code}. {_GUARD}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
