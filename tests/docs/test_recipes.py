"""The whole scripts on the pages: two ranks, data in files, and killed runs."""

import re
import signal
from importlib.util import find_spec

import pytest
from tests.docs.test_pages import DOCS, run_script
from tests.support.run_python import run_python

ON_CPU = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
SAVED = 'os.replace("checkpoint.new", checkpoint)'
KILL = 'state["feed"]["batches"] == 7 and os.kill(os.getpid(), 9)'

pytestmark = pytest.mark.long


def recipe(name, page="recipes"):
    text = (DOCS / f"{page}.md").read_text()
    (script,) = re.findall(rf'^```python title="{name}"\n(.*?)^```', text, re.DOTALL | re.MULTILINE)
    return script


def test_two_ranks_train_with_distributed_data_parallel(tmp_path):
    (tmp_path / "train_ddp.py").write_text(recipe("train_ddp.py"))
    done = run_python(
        "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train_ddp.py", cwd=tmp_path, **ON_CPU
    )
    assert done.returncode == 0, done.stderr
    reports = re.findall(r"rank (\d) of 2: epoch (\d), (\d+) steps", done.stdout)
    assert sorted(reports) == [("0", "0", "10"), ("0", "1", "10"), ("1", "0", "10"), ("1", "1", "10")]


def test_data_in_files_is_shuffled_by_blocks(tmp_path):
    assert "block" in run_script(recipe("beyond_memory.py"), tmp_path)


@pytest.mark.parametrize(
    ("name", "checkpoint"), [("train_resumable.py", "checkpoint.pt"), ("train_resumable_tf.py", "checkpoint.json")]
)
@pytest.mark.parametrize(
    "killed", [f"{SAVED}\n            {KILL}", f"{KILL}\n            {SAVED}"], ids=["after", "before"]
)
def test_a_killed_run_continues_with_the_next_row_and_the_same_losses(killed, name, checkpoint, tmp_path):
    """The process is killed just after or before the seventh checkpoint replaces the sixth."""
    script = recipe(name)
    expected = run_script(script, tmp_path).splitlines()
    (tmp_path / checkpoint).unlink()
    (tmp_path / "train.py").write_text(script.replace(SAVED, killed))
    first = run_python("train.py", cwd=tmp_path, **ON_CPU)
    assert first.returncode == -signal.SIGKILL
    second = run_script(script, tmp_path)
    assert len(expected) == 30
    assert list(dict.fromkeys(first.stdout.splitlines() + second.splitlines())) == expected


@pytest.mark.skipif(find_spec("orbax") is None, reason="Orbax is not installed: it comes with the extra `trainers`")
def test_a_killed_run_with_orbax_saves_every_step_and_continues_with_the_same_losses(tmp_path):
    """The process is killed in the second epoch, after some of its checkpoints are complete."""
    script = recipe("train_orbax.py", "trainers")
    (tmp_path / "whole").mkdir()
    expected = run_script(script, tmp_path / "whole").splitlines()
    killed = script.replace("step += 1", "step += 1\n            step == 17 and os.kill(os.getpid(), 9)")
    (tmp_path / "train.py").write_text(f"import os\n{killed}")
    first = run_python("train.py", cwd=tmp_path, **ON_CPU)
    assert first.returncode == -signal.SIGKILL
    second = run_script(script, tmp_path).splitlines()
    assert len(expected) == 30
    assert 10 < len(second) < 30
    assert list(dict.fromkeys(first.stdout.splitlines() + second)) == expected
    assert sorted(path.name for path in (tmp_path / "checkpoints").glob("[0-9]*")) == ["28", "29"]
