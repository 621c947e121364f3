"""The CPU time of all descendants of a process, such as worker processes."""

import subprocess
import sys

import pytest

from forebay.doctor.capture.process_facts import descendant_cpu_seconds

TICKS = 100  # per second, as on every Linux
BUSY = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"


@pytest.fixture
def proc_folder(tmp_path):
    """Write a folder like /proc. Process 7 has the child 8, which has the child 9. Process 10 is another program."""
    for number, parent, times in [(7, 1, "500 0 100 0"), (8, 7, "200 100 0 0"), (9, 8, "50 0 0 0"), (10, 1, "9 9 9 9")]:
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "stat").write_text(f"{number} (a (b) c) S {parent} {'0 ' * 9}{times} 20 0 1")
    (tmp_path / "meminfo").write_text("x")
    (tmp_path / "11").mkdir()  # a process that has just ended
    return tmp_path


def test_the_time_of_all_descendants_counts_even_if_they_have_ended(proc_folder):
    assert descendant_cpu_seconds(7, proc_folder) == pytest.approx((100 + 300 + 50) / TICKS)
    assert descendant_cpu_seconds(9, proc_folder) == 0.0


def test_the_time_is_unknown_on_other_systems(proc_folder):
    assert descendant_cpu_seconds(7, proc_folder / "missing") is None
    assert descendant_cpu_seconds(99, proc_folder) is None


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_time_of_a_real_child_counts():
    before = descendant_cpu_seconds()
    with subprocess.Popen([sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        while_running = descendant_cpu_seconds()
        child.communicate(b"\n")
    assert while_running >= before + 0.25
    assert descendant_cpu_seconds() >= before + 0.25
