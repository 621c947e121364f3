"""The excerpt of a script has what cures need, and nothing else."""

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.doctor.capture.source_excerpt import MAX_SOURCE_LINES, excerpt_files, excerpt_source

SCRIPT = '''"""A docstring with private words."""
import numpy as np
import torch

password = "secret"  # a comment
batch_size = 32
x = np.load("x.npy")


def unrelated():
    return password


def loss_of(batch):
    """More private words."""
    return model(batch).mean()


model = torch.nn.Linear(4, 1)
try:
    for start in range(0, len(x), batch_size):
        batch = torch.tensor(x[start : start + batch_size])  # converts
        loss = loss_of(batch)
except KeyboardInterrupt:
    print("stopped")
'''
CONVERSION = 22


def text_of(lines):
    return "\n".join(lines.get(number, "") for number in range(1, max(lines) + 1))


def test_an_excerpt_has_the_loop_and_the_assignments_it_reads():
    lines = excerpt_source(SCRIPT, {CONVERSION})
    assert lines[CONVERSION] == "        batch = torch.tensor(x[start : start + batch_size])"
    assert lines[6] == "batch_size = 32"
    assert lines[7] == 'x = np.load("x.npy")'
    assert lines[14] == "def loss_of(batch):"


@pytest.mark.parametrize("words", ["secret", "private", "comment", "converts", "unrelated", "stopped"])
def test_an_excerpt_has_no_comment_no_docstring_and_no_unrelated_statement(words):
    assert words not in text_of(excerpt_source(SCRIPT, {CONVERSION}))


def test_an_excerpt_is_valid_python_with_the_same_line_numbers():
    tree = ast.parse(text_of(excerpt_source(SCRIPT, {CONVERSION})))
    loop = next(node for node in ast.walk(tree) if isinstance(node, ast.For))
    assert (loop.lineno, loop.body[0].lineno) == (21, CONVERSION)


def test_an_input_call_is_in_the_excerpt_without_a_recorded_line():
    assert 2 in excerpt_source("loader = 1\nloader = DataLoader(rows, batch_size=4)\n", {99})


@pytest.mark.parametrize("source", ["", "x = (", "\x00", "!ls\nx = 1", "x = 1\n" * (MAX_SOURCE_LINES + 1)])
def test_a_source_that_cannot_be_read_has_no_excerpt(source):
    assert excerpt_source(source, {1}) == {}


def test_a_long_table_of_data_is_left_out():
    table = "table = [\n" + "    1,\n" * 80 + "]\n"
    lines = excerpt_source(f"{table}for i in rows:\n    print(table)\n", {84})
    assert lines[1] == "pass"


def test_files_are_read_once_and_unreadable_files_are_left_out(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    facts = excerpt_files([(str(script), CONVERSION, "<module>"), (str(tmp_path / "missing.py"), 3, "f")])
    assert [excerpt["file"] for excerpt in facts["files"]] == [str(script)]
    assert excerpt_files([]) == {}


SCRIPTS = sorted((Path(__file__).parents[1] / "scripts").glob("*/*.py"))


@given(script=st.sampled_from(SCRIPTS), numbers=st.sets(st.integers(1, 60), max_size=6))
def test_every_excerpt_of_a_script_is_valid_python(script, numbers):
    source = script.read_text()
    lines = excerpt_source(source, numbers)
    ast.parse(text_of(lines) if lines else "")
    texts = source.split("\n")
    assert all(text.strip() == "pass" or texts[number - 1].startswith(text) for number, text in lines.items())
