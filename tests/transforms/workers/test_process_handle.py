"""Worker processes survive forks of their parent, and start without standard streams."""

import os

import pytest
from tests.support.run_python import run_python

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs os.fork and POSIX file descriptors")

PREAMBLE = """
import fcntl, os, sys
from forebay.core.shared_memory import SharedBlock
from forebay.transforms.workers.process_pool import ProcessPool

def double(memory, task):
    return 2 * task
"""


def run_script(tmp_path, body, top_level=""):
    """Run a script; return its completed process. Only the parent runs `body`, all processes run `top_level`."""
    script = tmp_path / "script.py"
    script.write_text(
        PREAMBLE + top_level + 'if __name__ == "__main__":\n' + "\n".join(f"    {line}" for line in body.split("\n"))
    )
    return run_python(script, seconds=100)


@pytest.mark.parametrize("ending", ["sys.exit(0)", "raise ValueError('in the child')"])
def test_a_forked_process_that_ends_normally_leaves_the_workers_to_its_parent(tmp_path, ending):
    done = run_script(
        tmp_path,
        f"""
pool, block = ProcessPool(double, 2), SharedBlock(1 << 16)
pids = pool.pids
print([pool.run(worker, block, 1) for worker in range(2)], flush=True)
child = os.fork()
if child == 0:
    {ending}
os.waitpid(child, 0)
print([pool.run(worker, block, 21) for worker in range(2)], pool.pids == pids)
pool.close()
""",
    )
    assert done.stdout == "[2, 2]\n[42, 42] True\n"
    assert "multiprocessing" not in done.stderr  # its exit function would report the parent's processes


CLOSED_DESCRIPTORS = pytest.mark.parametrize("closed", [[0], [1], [2], [1, 2], [0, 1, 2]])


@CLOSED_DESCRIPTORS
def test_workers_start_when_standard_descriptors_are_closed(tmp_path, closed):
    done = run_script(
        tmp_path,
        f"""
report = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 50)
for descriptor in {closed}:
    os.close(descriptor)
with ProcessPool(double, 2) as pool, SharedBlock(1 << 16) as block:
    answers = [pool.run(worker, block, 21) for worker in range(2)]
os.write(report, repr(answers).encode())
os._exit(0)  # skip Python's check of the closed standard streams
""",
    )
    assert (done.returncode, done.stdout) == (0, "[42, 42]")


@CLOSED_DESCRIPTORS
def test_workers_start_when_the_script_closes_standard_descriptors_in_every_process(tmp_path, closed):
    done = run_script(
        tmp_path,
        """
with ProcessPool(double, 2) as pool, SharedBlock(1 << 16) as block:
    answers = [pool.run(worker, block, 21) for worker in range(2)]
os.write(report, repr(answers).encode())
os._exit(0)
""",
        top_level=f"""
report = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 50)
for descriptor in {closed}:
    os.close(descriptor)
""",
    )
    assert (done.returncode, done.stdout) == (0, "[42, 42]")


def test_output_to_a_closed_stream_does_not_reach_the_pipe_of_a_worker(tmp_path):
    done = run_script(
        tmp_path,
        """
report = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 50)
os.close(1)
with ProcessPool(double, 1) as pool, SharedBlock(1 << 16) as block:
    print("not a message", flush=True)
    os.write(report, repr(pool.run(0, block, 21)).encode())
os._exit(0)
""",
    )
    assert (done.returncode, done.stdout) == (0, "42")
