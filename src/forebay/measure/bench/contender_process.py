"""`ContenderProcess`: the handle with which `forebay bench` controls a contender process."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing import Pipe
from time import monotonic, sleep
from types import TracebackType
from typing import Any

from forebay.measure.bench.model import Skip

__all__ = ["ContenderFailed", "ContenderProcess"]

SECONDS_TO_END = 5.0  # time in which the process should end by itself; after it, `close` kills the process
POLL_SECONDS = 0.02  # between two checks whether a child process of the contender still runs
# Environment of the process, unless the user has set these variables: few messages, and a backend for Keras.
DEFAULT_ENVIRONMENT = {"TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow", "PYTHONWARNINGS": "ignore"}


class ContenderFailed(Exception):  # noqa: N818  a result of the contender, not an error of `forebay bench`
    """A contender raised an exception, died, or did not reply in time."""


class ContenderProcess:
    """One contender in its own process."""

    def __init__(self) -> None:
        self._connection, child_connection = Pipe()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  closed in close()
        command = [sys.executable, "-m", "forebay.measure.bench.contender_main", str(child_connection.fileno())]
        # The process leads a new session, so that close() can also kill its child processes.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            pass_fds=[child_connection.fileno()],
            env=DEFAULT_ENVIRONMENT | os.environ,
            start_new_session=True,
        )
        child_connection.close()
        self._deadline = 0.0  # monotonic time in seconds at which close() kills the process

    def send_request(self, request: Mapping[str, Any]) -> None:
        """Send a request without waiting for the reply.

        The runner first sends the set-up request to all processes, so that they set up at the same time.
        """
        try:
            self._connection.send_bytes(json.dumps(request).encode())
        except OSError as error:
            raise ContenderFailed(self._exit_reason()) from error

    def receive_reply(self, *, timeout_seconds: float) -> dict[str, Any]:
        """Wait for the reply to the last request, and return it.

        Raises `Skip` if the contender cannot run the workload, and `ContenderFailed` if it failed or did not reply.
        """
        if not self._connection.poll(timeout_seconds):
            raise ContenderFailed(f"gave no answer in {timeout_seconds:.0f} s")
        try:
            reply: dict[str, Any] = json.loads(self._connection.recv_bytes())
        except (EOFError, OSError) as error:
            raise ContenderFailed(self._exit_reason()) from error
        if "skipped" in reply:
            raise Skip(reply["skipped"])
        if "failed" in reply:
            raise ContenderFailed(reply["failed"])
        return reply

    def stop_requests(self) -> None:
        """Close the connection, which tells the process to end.

        `close()` kills the process if this takes more than `SECONDS_TO_END`.
        """
        if not self._connection.closed:
            self._connection.close()
            self._deadline = monotonic() + SECONDS_TO_END

    def close(self) -> None:
        """End the process. Kill the process and its child processes if they take too long."""
        self.stop_requests()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.1, self._deadline - monotonic()))
        self._kill_session()
        self._process.wait()
        self._log.close()

    def __enter__(self) -> "ContenderProcess":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _kill_session(self) -> None:
        """Kill the processes of the session that are left at the deadline.

        Child processes may need this time after the end of their parent, for example to remove its shared memory.
        """
        with suppress(ProcessLookupError):  # all processes have ended
            while monotonic() < self._deadline:
                os.killpg(self._process.pid, 0)
                sleep(POLL_SECONDS)
            os.killpg(self._process.pid, signal.SIGKILL)

    def _exit_reason(self) -> str:
        """Wait until the process has ended, but at most `SECONDS_TO_END`.

        Return its exit code or signal, and its last line of output.
        """
        try:
            code = self._process.wait(SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            how = "closed its connection and did not end"
        else:
            how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        self._log.seek(0)
        last_line = (self._log.read().decode(errors="replace").strip().splitlines() or ["it printed nothing"])[-1]
        return f"its process {how}: {last_line}"
