"""Edits that save in a background thread write the same files as the script, one file at a time."""

import time

import pytest
from tests.doctor.applied_cures import apply_cure
from tests.doctor.rules.edited_code import code_after

from forebay.doctor.rules.save_edits import save_in_thread

SCRIPTS = {
    "loop": "for step in range(3):\n    state[0] = step\n    torch.save({'step': step, 'state': state}, f'{step}')",
    "function": (
        "def save(step):\n    torch.save({'step': step, 'state': state}, f=f'{step}')\n"
        "for step in range(3):\n    state[0] = step\n    save(step)"
    ),
    "method": (
        "class Trainer:\n  def save(self, step):\n    torch.save(obj={'step': step, 'state': state}, f=str(step))\n"
        "trainer = Trainer()\nfor step in range(3):\n    state[0] = step\n    trainer.save(step)"
    ),
    "nested loops": (
        "def train():\n    for epoch in range(1):\n        for step in range(3):\n            state[0] = step\n"
        "            torch.save(\n                {'step': step,\n                 'state': state},\n"
        "                str(step),\n            )\n"
        "train()"
    ),
    "a name that is taken": "writers = 3\nfor step in range(writers):\n    state[0] = step\n"
    "    torch.save({'step': step, 'state': state}, str(step))",
}


class Torch:
    """Replaces the module. `save` writes slowly into a dict and refuses two writers at once."""

    def __init__(self):
        self.files, self.is_writing = {}, False

    def save(self, obj, f):
        assert not self.is_writing
        self.is_writing = True
        deadline = time.monotonic() + 0.01
        while time.monotonic() < deadline:
            pass
        self.files[f], self.is_writing = obj, False


def code_for(source):
    number = next(number for number, text in enumerate(source.split("\n"), 1) if "torch.save(" in text)
    return code_after(source, number, save_in_thread)


@pytest.mark.parametrize("script", SCRIPTS)
def test_files_hold_the_state_of_their_step_and_are_complete_after_the_loop(script):
    torch = Torch()
    text = apply_cure(SCRIPTS[script], code_for(SCRIPTS[script]))
    assert "Thread(target=torch.save" in text
    exec(compile(text, "script", "exec"), {"torch": torch, "state": [0]})
    assert torch.files == {str(step): {"step": step, "state": [step]} for step in range(3)}


def test_a_loss_is_detached_because_a_tensor_with_a_history_cannot_be_copied():
    source = "for x in data:\n    loss.backward()\n    torch.save({'loss': loss, 'w': w}, 'a.pt')"
    assert "copy.deepcopy({'loss': loss.detach(), 'w': w}), 'a.pt'" in code_for(source)


@pytest.mark.parametrize(
    ("line", "call"),
    [
        ("import threading as th, copy as c", "th.Thread(target=torch.save, args=(c.deepcopy("),
        ("from copy import copy", "threading.Thread(target=torch.save, args=(copy_module.deepcopy("),
        ("copy = 3", "threading.Thread(target=torch.save, args=(copy_module.deepcopy("),
    ],
)
def test_the_names_of_the_script_keep_their_meaning(line, call):
    source = f"{line}\nfor x in data:\n    torch.save(w, 'a.pt')"
    assert call in code_for(source)
    assert ("import copy as copy_module" in code_for(source)) == ("copy_module" in call)


def test_files_in_a_folder_that_is_deleted_after_the_loop_are_saved_in_a_thread():
    source = "with tempfile.TemporaryDirectory() as d:\n    for x in data:\n        torch.save(w, d + '/a')"
    assert "Thread(target=torch.save" in code_for(source)


@pytest.mark.parametrize(
    "source",
    [
        "for x in data:\n    with open('a', 'wb') as file:\n        torch.save(w, file)",
        "for x in data:\n    file = io.BytesIO()\n    torch.save(w, file)",
        "for x in data:\n    file = open('a', 'wb')\n    torch.save(w, file)\n    file.close()",
        "for x in data:\n    with tempfile.TemporaryDirectory() as d:\n        torch.save(w, os.path.join(d, 'a'))",
        "for x in data:\n    torch.save(w, 'a.tmp')\n    os.replace('a.tmp', 'a.pt')",
        "def save(name):\n    torch.save(w, name)\n    shutil.copy(name, 'b.pt')\nfor x in data:\n    save('a.pt')",
        "for x in data:\n    torch.save(w, 'a.pt', pickle_protocol=4)",
        "for x in data:\n    torch.save(*arguments)",
        "for x in data:\n    name = torch.save(w, 'a.pt')",
        "for x in data:\n    np.save('torch.save()', w)",
    ],
    ids=[
        *("closed file", "file in memory", "file that is closed later", "folder that is deleted", "renamed file"),
        *("copied file", "other arguments", "unknown arguments", "result", "another function"),
    ],
)
def test_a_call_that_a_thread_cannot_make_is_left_alone(source):
    assert code_for(source) == ""
