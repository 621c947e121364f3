"""The edits of public scripts, tested on small scripts."""

import pytest
from tests.wild.edits import (
    add_arguments,
    call_instead,
    call_item,
    drop_keyword,
    import_instead,
    insert_before,
    mark_steps,
    move_to_function,
    rename_attribute,
    rename_keyword,
    set_arguments,
    set_literal,
    set_range,
    set_values,
    wrap_call,
    wrap_value,
)


def test_a_setting_reaches_every_literal_of_its_name():
    text = "epochs = 5\ndef f(epochs: int = 6): fit(epochs=7, other=epochs)\nconfig = {'epochs': 10**2}\n"
    assert set_values({"epochs": "1"})(text) == (
        "epochs = 1\ndef f(epochs: int = 1): fit(epochs=1, other=epochs)\nconfig = {'epochs': 1}\n"
    )


def test_a_value_that_the_script_computes_is_not_replaced():
    with pytest.raises(ValueError, match="no literal for size"):
        set_values({"size": "1"})("size = len(rows)\n")


def test_text_after_letters_of_several_bytes_is_edited_at_the_right_place():
    assert set_values({"n": "1"})("print('é'); n = 2\n") == "print('é'); n = 1\n"


def test_a_literal_is_not_confused_with_an_equal_value_of_another_type():
    assert set_literal(1, "2")("a = [1, True, 1.0, '1']\n") == "a = [2, True, 1.0, '1']\n"


def test_a_call_gets_another_function_and_a_first_argument():
    assert call_instead("load", "stored.load", '"x"')("a = data.load(\n    1)\n") == 'a = stored.load("x", \n    1)\n'


def test_arguments_change_without_changing_the_number_of_lines():
    assert set_arguments("split", "rows, 3")("a = split(\n    rows, 2)\nb = 1\n") == "a = split(rows, 3\n)\nb = 1\n"


def test_arguments_are_added_after_a_trailing_comma():
    assert add_arguments("load", "workers=2")("load(\n    rows,\n)\n") == "load(\n    rows,workers=2\n)\n"


def test_keywords_are_renamed_and_dropped():
    text = "Adam(p, lr=1, decay=2)\n"
    assert drop_keyword("Adam", "decay")(rename_keyword("Adam", "lr", "rate")(text)) == "Adam(p, rate=1)\n"


def test_text_is_written_around_calls_and_values():
    text = "env = make('x')\n"
    assert wrap_call("make", "Ending(", ", 3)")(text) == "env = Ending(make('x'), 3)\n"
    assert wrap_value("env", "[", "]")(text) == "env = [make('x')]\n"


def test_imports_and_attributes_are_replaced():
    assert import_instead("writer", "import nothing")("from log import writer\n") == "import nothing\n"
    assert rename_attribute("A", "toarray()")("x.A.A\n") == "x.toarray().toarray()\n"


def test_an_import_with_another_name_is_replaced():
    assert (
        import_instead("K", "from other import K")("import a.b as K\nimport c\n") == "from other import K\nimport c\n"
    )


def test_an_index_of_a_loss_becomes_a_call_of_item():
    assert call_item("data")("a = loss.data[0] + b.data[1] + c.grad.data\n") == (
        "a = loss.data.item() + b.data[1] + c.grad.data\n"
    )


def test_a_loop_runs_another_number_of_times():
    assert set_range("i", 3)("for i in range(0, 200 + a):\n    pass\n") == "for i in range(3):\n    pass\n"


def test_a_mark_in_front_of_a_simple_statement_adds_no_line():
    marked = mark_steps(1)("for x in rows:\n    use(x)\n")
    assert marked == 'for x in rows:\n    __import__("step_clock").mark(); use(x)\n'


def test_a_mark_in_front_of_a_compound_statement_has_its_own_line():
    marked = mark_steps(1)("while True:\n    if a:\n        b()\n")
    assert marked == 'while True:\n    __import__("step_clock").mark()\n    if a:\n        b()\n'


def test_a_missing_loop_is_reported():
    with pytest.raises(ValueError, match="line 2"):
        mark_steps(2)("a = 1\nb = 2\n")


def test_lines_of_a_loop_become_a_function_and_the_mark_stays_in_the_loop():
    text = "for x in rows:\n    y = x + 1\n    y = y * 2\n    use(y)\n"
    moved = move_to_function((2, 3), "@fast\ndef step(x):", "y", before_line=1)(mark_steps(1)(text))
    assert moved == (
        "@fast\ndef step(x):\n    y = x + 1\n    y = y * 2\n    return y\n"
        'for x in rows:\n    __import__("step_clock").mark(); y = step(x)\n    use(y)\n'
    )


def test_a_statement_is_inserted_with_the_indentation_of_its_line():
    assert insert_before(2, "y = 0")("for x in rows:\n    use(x)\n") == "for x in rows:\n    y = 0\n    use(x)\n"
