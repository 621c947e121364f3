"""The excerpt of a script contains the statements that cures need, and nothing else."""

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.parsing import parse

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
CONVERSION = 22  # number of the line of SCRIPT that converts a batch; most tests record this line


def text_of(lines):
    """Return an excerpt as source, with empty lines for the lines that it leaves out."""
    return "\n".join(lines.get(number, "") for number in range(1, max(lines) + 1))


def test_an_excerpt_has_the_recorded_loop_and_what_the_loop_reads_and_calls():
    lines = excerpt_source(SCRIPT, {CONVERSION})
    assert lines[CONVERSION] == "        batch = torch.tensor(x[start : start + batch_size])"
    assert lines[6] == "batch_size = 32"
    assert lines[7] == 'x = np.load("x.npy")'
    assert lines[14] == "def loss_of(batch):"


@pytest.mark.parametrize("words", ["secret", "private", "comment", "converts", "unrelated", "stopped"])
def test_an_excerpt_has_no_comment_no_docstring_and_no_unrelated_statement(words):
    assert words not in text_of(excerpt_source(SCRIPT, {CONVERSION}))


def test_an_excerpt_is_valid_python_with_the_same_line_numbers():
    tree = parse(text_of(excerpt_source(SCRIPT, {CONVERSION})))
    loop = next(node for node in ast.walk(tree) if isinstance(node, ast.For))
    assert (loop.lineno, loop.body[0].lineno) == (21, CONVERSION)


def test_a_call_that_makes_batches_is_in_the_excerpt_even_if_its_line_was_not_recorded():
    assert 2 in excerpt_source("loader = 1\nloader = DataLoader(rows, batch_size=4)\n", {99})


@pytest.mark.parametrize("source", ["", "x = (", "\x00", "!ls\nx = 1", "x = 1\n" * (MAX_SOURCE_LINES + 1)])
def test_a_source_that_is_too_long_or_cannot_be_parsed_has_no_excerpt(source):
    assert excerpt_source(source, {1}) == {}


def test_a_long_table_of_data_is_left_out():
    table = "table = [\n" + "    1,\n" * 80 + "]\n"
    lines = excerpt_source(f"{table}for i in rows:\n    print(table)\n", {84})
    assert lines[1] == "pass"  # replaces the table, so that the excerpt is valid Python


def test_a_file_with_two_lines_has_one_excerpt_and_a_missing_file_has_none(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    recorded = [(str(script), CONVERSION, "<module>"), (str(script), 16, "loss_of"), (str(tmp_path / "no.py"), 3, "f")]
    facts = excerpt_files(recorded)
    assert [excerpt["file"] for excerpt in facts["files"]] == [str(script)]
    assert excerpt_files([]) == {}


SCRIPTS = sorted((Path(__file__).parents[1] / "scripts").glob("*/*.py"))


@given(script=st.sampled_from(SCRIPTS), numbers=st.sets(st.integers(1, 60), max_size=6))
def test_every_excerpt_of_a_script_is_valid_python(script, numbers):
    source = script.read_text()
    lines = excerpt_source(source, numbers)
    parse(text_of(lines) if lines else "")
    texts = source.split("\n")
    assert all(text.strip() == "pass" or texts[number - 1].startswith(text) for number, text in lines.items())
