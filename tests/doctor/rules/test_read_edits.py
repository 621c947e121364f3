"""Values that a loop reads less often, or receives later, stay the same."""

from types import SimpleNamespace

import numpy as np
import pytest
from tests.doctor.applied_cures import apply_cure
from tests.doctor.rules.edited_code import code_after

from forebay.doctor.rules.read_edits import check_on_device, read_few_times, receive_later


@pytest.mark.parametrize(
    ("line", "framework", "wanted"),
    [
        ("total += loss.item()", "torch", "total += loss.detach()"),
        ("total += float(loss)", "jax", "total += loss"),
        ("losses.append(loss.detach().cpu().numpy())", "torch", "losses.append(loss.detach())"),
        ("losses.append(loss.item())", "torch", "losses = [value.item() for value in losses]"),
        ("print(loss.item())", "torch", "if i % 100 == 0:\n    print(loss.item())"),
    ],
)
def test_a_value_stays_on_the_device_or_is_read_in_few_steps(line, framework, wanted):
    source = f"total, losses = 0, []\nfor i in range(9):\n    {line}\n"
    assert wanted in code_after(source, 3, read_few_times, framework)


EACH_EPOCH = "for epoch in range(2):\n    losses = []\n    for i in range(3):\n        losses.append(Loss(i).item())\n"
ALL_EPOCHS = "losses = []\nfor epoch in range(2):\n    for i in range(3):\n        losses.append(Loss(i).item())\n"


@pytest.mark.parametrize(("source", "losses"), [(EACH_EPOCH, [0, 1, 2]), (ALL_EPOCHS, [0, 1, 2] * 2)])
def test_a_list_is_read_once_after_the_loop_that_fills_it(source, losses):
    names = {"Loss": lambda value: SimpleNamespace(item=lambda: value)}
    exec(apply_cure(source, code_after(source, 4, read_few_times, "jax")), names)
    assert names["losses"] == losses


@pytest.mark.parametrize("value", [2, 0.5])
def test_a_sum_keeps_its_type(value):
    source = f"total = 0\nfor i in range(3):\n    total += np.asarray({value}).item()\n"
    names = {"np": np}
    exec(apply_cure(source, code_after(source, 3, read_few_times, "jax")), names)
    assert (names["total"], type(names["total"])) == (3 * value, type(value))


@pytest.mark.parametrize(
    "source",
    [
        "losses = [first.item()]\nfor i in r:\n    losses.append(loss.item())",
        "losses = []\nlosses.append(0.5)\nfor i in r:\n    losses.append(loss.item())",
        "if new: losses = []\nfor i in r:\n    losses.append(loss.item())",
        "losses = []\ndef train():\n  for i in r:\n    losses.append(loss.item())",
        "def train(losses):\n  for i in r:\n    losses.append(loss.item())",
        "losses = []\ndef log():\n  losses.append(1.0)\nfor i in r:\n    losses.append(loss.item())",
        "losses = []\nfor e in s:\n  print(losses)\n  for i in r:\n    losses.append(loss.item())",
        "for i in r:\n    total += loss.cpu().numpy()",
    ],
)
def test_values_that_may_already_be_numbers_are_read_in_every_step(source):
    assert code_after(source, source.count("\n") + 1, read_few_times, "torch") == ""


def test_a_sum_that_the_loop_prints_stays_a_number():
    source = "for i in range(9):\n    total += loss.item()\n    print(total)\n"
    assert code_after(source, 2, read_few_times, "torch") == ""


def test_a_readback_receives_the_same_values():
    source = "for i in range(9):\n    losses.append(loss.item())\n"
    text = apply_cure(source, code_after(source, 2, receive_later))
    assert text.count("losses.append(float(value))") == 2
    compile(text, "cured", "exec")
    needs_step = "for i in range(9):\n    losses.append(loss.item() / i)\n"
    assert code_after(needs_step, 2, receive_later) == ""


def test_numpy_checks_run_on_the_device():
    source = "import numpy as np\nimport torch\nfor i in r:\n    bad = np.isnan(y.cpu().numpy()).any()\n"
    assert "bad = torch.isnan(y).any()" in code_after(source, 4, check_on_device, "torch")
    assert code_after(source.replace("isnan", "histogram"), 4, check_on_device, "torch") == ""


@pytest.mark.parametrize(
    ("read", "arrived"),
    [("int(y.item())", "int(value)"), ("y.cpu().numpy()", "value"), ("y.tolist()", "value.tolist()")],
)
def test_values_that_arrive_later_have_the_same_type(read, arrived):
    text = code_after(f"for i in range(9):\n    ys.append({read})\n", 2, receive_later)
    assert f"ys.append({arrived})" in text
