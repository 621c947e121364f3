"""Lines, loops, calls and names in the parsed excerpt of a script, and changes of its code."""

import ast

import pytest
from tests.doctor.captures import capture_of
from tests.support.parsing import parse

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.loop_code import counter_of, numpy_names, step_loop
from forebay.doctor.analyse.script_code import ScriptCode, last_name, root_name, script_code, stored_names
from forebay.doctor.model.events import Line

SOURCE = """import numpy as np
import tensorflow as tf

rows = np.zeros((8, 2))
for epoch in range(3):
    with tf.device("/GPU:0"):
        for é in rows[::2]:
            step(é,
                 epoch)
if __name__ == "__main__":
    print(rows)
"""


@pytest.fixture
def code():
    return ScriptCode(SOURCE)


def test_a_line_has_its_innermost_statement_loops_and_device(code):
    statement = code.statement_at(9)
    assert isinstance(statement, ast.Expr)
    assert [loop.lineno for loop in code.loops_around(statement)] == [7, 5]
    assert code.device_scope(statement).lineno == 6
    assert code.device_scope(code.statement_at(4)) is None


def test_the_text_of_a_statement_has_its_non_ascii_letters_and_no_indentation(code):
    assert code.text(code.statement_at(8)) == "step(é,\n     epoch)"


def test_the_header_of_a_loop_is_rewritten_without_its_body(code):
    loop = code.loops_around(code.statement_at(8))[0]
    assert code.rewrite_header(loop, code.replace(loop.iter, "feed")) == "for é in feed:"


def test_a_main_guard_imports_and_names_of_a_script_are_found(code):
    assert code.has_main_guard
    assert (code.module_alias("numpy", "numpy"), code.imports("torch")) == ("np", False)
    assert code.new_name("rows") == "rows_"
    assert isinstance(code.value_of("rows"), ast.Call)
    assert code.value_of("epoch") is None


def test_a_keyword_of_a_call_is_set_replaced_and_removed():
    code = ScriptCode('DataLoader(\n    rows,\n    batch_size=4,\n)\nmodel.compile("sgd", run_eagerly=True)\nf(a=1)')
    loader, compiled, short = code.calls("DataLoader", "compile", "f")
    assert (
        code.rewrite(loader, code.set_keyword(loader, "batch_size", "8"))
        == "DataLoader(\n    rows,\n    batch_size=8,\n)"
    )
    assert "num_workers=2)" in code.rewrite(loader, code.set_keyword(loader, "num_workers", "2"))
    assert code.rewrite(compiled, code.remove_keyword(compiled, "run_eagerly")) == 'model.compile("sgd")'
    assert code.rewrite(short, code.remove_keyword(short, "a")) == "f()"
    assert code.remove_keyword(short, "b") is None


def test_the_last_and_the_first_name_of_an_expression_are_found():
    call = parse("a.b(c)[0].d(e)").body[0].value
    assert (last_name(call), root_name(call)) == ("d", "a")
    assert last_name(parse("1 + 2").body[0].value) == ""


def test_stored_names_include_changed_arrays_but_no_local_names():
    tree = parse("x[0] = 1\ny = [i for i in z]\nobject.value = 2\nf = lambda w: w")
    assert stored_names(tree) == {"x", "y", "object", "f"}


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("x = np.load('x.npy')", {"x"}),
        ("(a, b), (c, d) = mnist.load_data()", {"a", "b", "c", "d"}),
        ("x = numpy.ones(3)\ny = x[:2] / 255", {"x", "y"}),
        ("t = torch.ones(3)\nx = t.numpy()", {"x"}),
        ("t = tf.ones(3)", set()),
    ],
)
def test_numpy_arrays_are_found_by_their_assignments(source, names):
    assert numpy_names(ScriptCode(source)) == names


@pytest.mark.parametrize(
    ("header", "counter"),
    [
        ("for i in range(9):", ("i", None)),
        ("for _ in range(9):", ("step", "for step in range(9):")),
        ("for n, batch in enumerate(loader):", ("n", None)),
        ("for x, y in loader:", ("step", "for step, (x, y) in enumerate(loader):")),
        ("for i in range(0, rows, 32):", ("i // 32", None)),
        ("for i in range(first, rows, self.size * 2):", ("(i - first) // (self.size * 2)", None)),
        ("for _ in range(0, rows, size):", ("step // size", "for step in range(0, rows, size):")),
        ("for i in range(0, rows, 1):", ("i", None)),
        ("while True:", None),
    ],
)
def test_a_for_loop_has_a_step_counter_or_gets_one_but_a_while_loop_gets_none(header, counter):
    code = ScriptCode(f"{header}\n    train()")
    assert counter_of(code, code.tree.body[0]) == counter


@pytest.mark.parametrize(
    ("body", "counter"),
    [
        ("train()\n    step += 1", ("step", None)),
        ("step += 2", None),
        ("step += 1\n    if done:\n        step = 0", None),
        ("if done:\n        step += 1", None),
    ],
)
def test_a_while_loop_has_a_counter_if_each_iteration_adds_1_to_a_name(body, counter):
    code = ScriptCode(f"while True:\n    {body}")
    assert counter_of(code, code.tree.body[0]) == counter


def test_a_loop_on_one_line_gets_no_counter():
    code = ScriptCode("for _ in range(9): train()")
    assert counter_of(code, code.tree.body[0]) is None


def test_the_step_loop_of_a_function_is_the_loop_that_calls_it():
    code = ScriptCode("def step():\n    train()\nfor _ in range(3):\n    step()")
    assert step_loop(code, code.statement_at(2)).lineno == 3
    assert step_loop(code, code.tree.body[0]) is None


@pytest.mark.parametrize(
    "files",
    [
        [],
        [{"file": "train.py", "lines": [[1, "x = ("]]}],
        [{"file": "train.py", "lines": [[1, "\x00"]]}],
        [{"file": "train.py", "lines": []}],
        [{"file": "other.py", "lines": [[1, "x = 1"]]}],
        [{"file": "train.py", "lines": [[1_000_000, "x"], [1, "y" * 2_000_000]]}],
    ],
)
def test_a_missing_or_damaged_excerpt_has_no_code(files):
    view = CaptureView(capture_of([], facts={"script": {"files": files}}))
    assert script_code(view, Line("train.py", 1, "f")) is None
    assert script_code(view, None) is None


def test_the_code_of_a_line_is_that_of_its_file():
    facts = {"script": {"files": [{"file": "train.py", "lines": [[3, "x = 1"]]}]}}
    code = script_code(CaptureView(capture_of([], facts=facts)), Line("train.py", 3, "<module>"))
    assert code.text(code.statement_at(3)) == "x = 1"


@pytest.mark.parametrize(
    ("source", "without"),
    [
        ("f(k=1)", "f()"),
        ("f(k=1, b=2)", "f(b=2)"),
        ("f(a, k=1)", "f(a)"),
        ("f((a), k=(1), b=2)", "f((a), b=2)"),
        ("f(a, k=1,)", "f(a,)"),
        ("f(b=2)", None),
    ],
)
def test_a_keyword_is_removed_with_one_comma(source, without):
    code = ScriptCode(source)
    (call,) = code.calls("f")
    patch = code.remove_keyword(call, "k")
    assert (patch and code.rewrite(code.tree.body[0], patch)) == without


@pytest.mark.parametrize(
    "source", ["f()", "f(a)", "f(a,)", "f(\n    a,  # one, two\n)", "f(\n    a  # one, two\n)", "f((a))"]
)
@pytest.mark.parametrize("names", [["k"], ["k", "m"]])
def test_new_keywords_get_the_commas_that_they_need(source, names):
    code = ScriptCode(source)
    (call,) = code.calls("f")
    patches = code.set_keywords(call, dict.fromkeys(names, "1"))
    changed = parse(code.rewrite(code.tree.body[0], *patches))
    assert [keyword.arg for keyword in changed.body[0].value.keywords] == names
    assert ast.dump(ast.Module(changed.body[0].value.args, [])) == ast.dump(ast.Module(call.args, []))


@pytest.mark.parametrize(
    "source",
    [
        "match r:\n    case {'b': b}:\n        pass",
        "match r:\n    case [0, *b]:\n        pass",
        "match r:\n    case {'a': 1, **b}:\n        pass",
        "import b.c",
        "from a import c as b",
        "try:\n    pass\nexcept OSError as b:\n    pass",
        "class b:\n    pass",
        "with f() as (a, b):\n    pass",
        "f(b := 1)",
        "del b[0]",
        "b.c += 1",
    ],
)
def test_every_statement_that_binds_a_name_stores_it(source):
    code = ScriptCode(source)
    assert "b" in stored_names(code.tree)
    assert code.new_name("b") == "b_"


def test_a_parameter_is_no_new_name():
    assert ScriptCode("def f(b, *c): pass").new_name("c") == "c_"
