"""A script runs as Python would run it, and ends in the same way."""

import signal
import subprocess
import sys

import pytest

from forebay.doctor.capture.run_script import run_module, run_script


@pytest.fixture
def write(tmp_path):
    def write_script(text):
        path = tmp_path / "train.py"
        path.write_text(text)
        return str(path)

    return write_script


def test_the_script_gets_its_own_arguments_and_name(write, capsys):
    path = write("import sys\nprint(__name__, sys.argv[1:], sys.argv[0] == __file__)\n")
    assert run_script(path, ["--lr", "1"]) == "done"
    assert capsys.readouterr().out == "__main__ ['--lr', '1'] True\n"


def test_modules_next_to_the_script_can_be_imported(write, tmp_path, capsys):
    (tmp_path / "neighbour_of_train.py").write_text("print('here')\n")
    assert run_script(write("import neighbour_of_train\n"), []) == "done"
    assert capsys.readouterr().out == "here\n"


def test_the_script_is_found_after_it_changes_the_folder(write, tmp_path, monkeypatch, capsys):
    write("import os\nos.chdir('/')\nprint(os.path.isfile(__file__))\n")
    monkeypatch.chdir(tmp_path)
    assert run_script("train.py", []) == "done"
    assert capsys.readouterr().out == "True\n"


def test_the_exit_value_is_printed_as_python_does(write, capsys):
    assert run_script(write("raise SystemExit(('no', 'data'))\n"), []) == "exit ('no', 'data')"
    assert capsys.readouterr().err == "('no', 'data')\n"


def test_sigterm_ends_the_script_and_not_the_doctor(write):
    assert run_script(write("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n"), []) == "terminated"
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_sigterm_handler_of_the_script_is_called(write, capsys):
    handled = "import os, signal\nsignal.signal(15, lambda *_: print('saved'))\nos.kill(os.getpid(), 15)\n"
    assert run_script(write(handled + "signal.signal(15, signal.SIG_DFL)\n"), []) == "done"
    assert capsys.readouterr().out == "saved\n"


def test_sigterm_ends_a_forked_child_as_usual(write, capsys):
    child = "import os, time\npid = os.fork()\nif pid == 0:\n    time.sleep(100)\n"
    parent = "else:\n    os.kill(pid, 15)\n    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
    assert run_script(write(child + parent), []) == "done"
    assert capsys.readouterr().out == "-15\n"


def test_the_main_module_remains_for_threads_and_exit_handlers(write):
    run_script(write("value = 1\n"), ["x"])
    assert sys.modules["__main__"].value == 1
    assert sys.modules["__mp_main__"] is sys.modules["__main__"]
    assert sys.argv[1:] == ["x"]


@pytest.mark.parametrize(
    ("text", "ended"),
    [
        ("import sys; sys.exit()", "done"),
        ("raise SystemExit(0)", "done"),
        ("raise SystemExit(3)", "exit 3"),
        ("raise SystemExit('no data')", "exit no data"),
        ("raise KeyboardInterrupt", "interrupted"),
        ("raise ValueError('bad shape')", "ValueError: bad shape"),
        ("def broken(:", "SyntaxError"),
    ],
)
def test_the_result_says_how_the_script_ended(write, text, ended):
    assert run_script(write(text + "\n"), []).startswith(ended)


def test_a_traceback_shows_no_frames_of_the_doctor(write, capsys):
    run_script(write("def train():\n    raise ValueError('bad shape')\ntrain()\n"), [])
    error_output = capsys.readouterr().err
    assert "train.py" in error_output
    assert "bad shape" in error_output
    assert "runpy" not in error_output
    assert "forebay" not in error_output


def test_signal_handlers_of_a_failed_script_are_removed(write):
    before = signal.getsignal(signal.SIGCHLD)
    run_script(write("import signal\nsignal.signal(signal.SIGCHLD, print)\nraise ValueError('bad shape')\n"), [])
    assert signal.getsignal(signal.SIGCHLD) is before


def test_a_module_runs_as_python_m_does(tmp_path, monkeypatch, capsys):
    (tmp_path / "trainer_of_mine.py").write_text("import sys\nprint(__name__, sys.argv[1:])\n")
    monkeypatch.chdir(tmp_path)
    assert run_module("trainer_of_mine", ["a"]) == "done"
    assert capsys.readouterr().out == "__main__ ['a']\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("child", "code"), [("pass", 0), ("raise SystemExit(3)", 3), ("raise ValueError('theirs')", 1)]
)
def test_a_forked_child_ends_as_usual_without_a_report(write, child, code):
    path = write(
        "import os\n"
        "pid = os.fork()\n"
        f"if pid == 0:\n    {child}\n"
        "else:\n    print('child', os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
    )
    command = [sys.executable, "-m", "forebay", "doctor", path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert f"child {code}\n" in done.stdout
    assert done.stdout.count("forebay doctor") == 1
