"""Edits that run a statement only in some steps. They use a counter of the script or add one, so the script runs."""

import pytest
from tests.doctor.applied_cures import apply_cure
from tests.doctor.rules.edited_code import code_after

from forebay.doctor.analyse.script_code import ScriptCode
from forebay.doctor.rules.edits import format_edits
from forebay.doctor.rules.step_edits import every_nth_call, every_nth_step, every_nth_steps, without_counter

LOOPS = {  # each calls `save(i)` 20 times
    "range": "for i in range(20):\n    save(i)",
    "range without a name": "for _ in range(20):\n    save(_)",
    "range with a step": "for i in range(0, 640, 32):\n    save(i)",
    "range with a start and a step": "for i in range(7, 147, 7):\n    save(i)",
    "enumerate": "for n, i in enumerate('abcdefghijklmnopqrst'):\n    save(i)",
    "elements": "for i in 'abcdefghijklmnopqrst':\n    save(i)",
    "pairs": "for i, j in [(1, 2)] * 20:\n    save(i)",
    "while with a counter": "i = 0\nwhile i < 20:\n    save(i)\n    i += 1",
    "while without a counter": "i = 100\nwhile i:\n    save(i)\n    i -= 5",
    "while with a condition": "i = 0\nwhile i < 100:\n    i += 1\n    if i % 5 == 1:\n        save(i)",
    "nested loops": "for a in range(4):\n    i = 100\n    while i:\n        save(i)\n        i -= 20",
    "range, with a body that assigns the same name": "for _ in range(20):\n    i, _ = 0, 'best'\n    save(i)",
    "range, with a loop that counts with the same name": "for i in range(20):\n    for i in 'ab': pass\n    save(i)",
    "enumerate, with a body that assigns the same name": (
        "for _, i in enumerate('abcdefghijklmnopqrst'):\n    _, i = [], 0\n    save(i)"
    ),
    "a name that is taken": "step = 40\nwhile step:\n    step -= 2\n    save(step)",
}


def saved(source):
    """Run a source; return the arguments of its calls of `save`."""
    received = []
    exec(compile(source, "script", "exec"), {"save": received.append, "evaluate": lambda i: received.append(i)})
    return received


def line_of_save(source):
    return next(number for number, text in enumerate(source.split("\n"), 1) if "save(" in text)


@pytest.mark.parametrize("loop", LOOPS)
def test_with_the_edit_a_loop_of_any_kind_calls_a_function_in_every_fifth_step(loop):
    source = LOOPS[loop]
    text = apply_cure(source, code_after(source, line_of_save(source), every_nth_step, 5))
    assert len(saved(source)) == 20
    assert len(saved(text)) == 4


@pytest.mark.parametrize("loop", [name for name in LOOPS if name != "range without a name"])
def test_with_the_edit_every_fifth_call_remains(loop):
    source = LOOPS[loop]
    text = apply_cure(source, code_after(source, line_of_save(source), every_nth_call, 5))
    assert saved(text) == saved(source)[4::5]


def test_with_the_edit_every_fifth_of_the_steps_that_a_condition_chooses_remains():
    source = "for step in range(1, 201):\n    if (step + 1) % 20 == 0:\n        value = evaluate(step)"
    text = apply_cure(source, code_after(source, 3, every_nth_call, 5))
    assert saved(text) == [99, 199]


def test_an_assignment_that_each_step_needs_is_not_skipped():
    assert code_after("for i in r:\n    x = f(i)\n    g(x)", 2, every_nth_call, 5) == ""
    assert code_after("for i in r:\n    x = f(i)\n    g(x)", 2, every_nth_step, 5) == ""


def test_an_assignment_that_the_script_reads_later_is_not_skipped():
    source = "for step in range(200):\n    if step % every == 0:\n        value = evaluate(step)\n        save(value)"
    assert code_after(source, 3, every_nth_call, 5) == ""


def test_statements_that_follow_each_other_share_a_condition():
    source = "while True:\n    train()\n    save(model)\n    save(optimizer)\n    log()\n    save(loss)"
    assert format_edits(every_nth_steps(ScriptCode(source), [6, 3, 4], 5)).split("\n") == [
        "# before line 1:",
        "step = 0",
        "step_2 = 0",
        "# instead of lines 3 to 4:",
        "step += 1",
        "if step % 5 == 0:",
        "    save(model)",
        "    save(optimizer)",
        "# instead of line 6:",
        "step_2 += 1",
        "if step_2 % 5 == 0:",
        "    save(loss)",
    ]


def test_statements_on_one_line_are_not_moved_together():
    source = "for i in range(20):\n    save(i); save(-i)\n    save(0)"
    assert format_edits(every_nth_steps(ScriptCode(source), [3], 5)) != ""
    assert "# instead of lines" not in format_edits(every_nth_steps(ScriptCode(source), [2, 3], 5))


def test_a_string_of_several_lines_is_not_indented():
    with pytest.raises(ValueError, match="line 2 has a string of several lines"):
        code_after("for i in range(20):\n    save('''a\n  b''')", 2, every_nth_step, 5)


def test_if_one_statement_is_in_no_loop_there_are_no_edits():
    assert every_nth_steps(ScriptCode("save(0)\nfor i in r:\n    save(i)"), [1, 3], 5) == []


def test_code_for_an_unknown_loop_makes_its_own_counter():
    assert without_counter("save()", 5).split("\n") == [
        "step = 0   # before the loop",
        "step += 1   # in the loop",
        "if step % 5 == 0:",
        "    save()",
    ]


EPOCHS = """for epoch in range(2):
    for i, x in enumerate(range(7)):
        train(x)
        save(model, epoch)
"""


def test_a_statement_that_the_script_needs_at_its_end_also_runs_after_all_epochs():
    edited = apply_cure(EPOCHS, format_edits(every_nth_steps(ScriptCode(EPOCHS), [4], 5, also_at_end=True)))
    saved, trained = [], []
    exec(edited, {"train": trained.append, "save": lambda model, epoch: saved.append(len(trained)), "model": None})
    assert saved == [5, 10, 14]


def test_a_loop_without_epochs_keeps_its_counter():
    source = "for i, x in enumerate(data):\n    save(x)\n"
    edited = apply_cure(source, format_edits(every_nth_steps(ScriptCode(source), [2], 5, also_at_end=True)))
    saved = []
    exec(edited, {"data": range(12), "save": saved.append})
    assert saved == [0, 5, 10, 11]


def test_a_file_that_a_with_closes_is_not_written_after_the_loop():
    source = "for i in r:\n    with open(name, 'wb') as file:\n        dump(model, file)\n"
    assert every_nth_steps(ScriptCode(source), [3], 5, also_at_end=True) == []
    around = f"with open(name) as data:\n    {source.replace(chr(10), chr(10) + '    ')}".replace(
        "with open(name, 'wb') as file", "if i"
    )
    assert every_nth_steps(ScriptCode(around.rstrip()), [4], 5, also_at_end=True) != []
