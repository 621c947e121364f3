"""The line of an event is the innermost line of user code, never of a library or of Forebay."""

import json
from pathlib import Path

from forebay.doctor.capture.source_lines import SourceLines

HERE = str(Path(__file__))


def test_the_innermost_user_line_is_found():
    lines = SourceLines()
    number = lines.current_line(0)
    found = lines.read()[number]
    assert found.file == HERE
    assert found.text == "number = lines.current_line(0)"
    assert found.function == "test_the_innermost_user_line_is_found"


def test_frames_of_libraries_are_skipped():
    lines = SourceLines()
    found = []
    json.loads("{}", object_hook=lambda _: found.append(lines.current_line(0)))
    json.JSONDecoder(object_hook=lambda _: found.append(lines.current_line(0))).decode("{}")
    assert [line.file for line in lines.read()] == [HERE, HERE]


def test_each_line_has_one_index():
    lines = SourceLines()
    assert len({lines.current_line(0) for _ in range(5)}) == 1
    assert len(lines.locations) == 1


def test_functions_of_libraries_have_no_line():
    lines = SourceLines()
    assert lines.line_of_function(json.loads) == -1
    assert lines.line_of_function(len) == -1


def test_a_user_function_has_the_line_of_its_definition():
    lines = SourceLines()
    number = lines.line_of_function(test_each_line_has_one_index)
    assert lines.read()[number].text == "def test_each_line_has_one_index():"


def test_text_can_be_left_out():
    lines = SourceLines()
    lines.current_line(0)
    assert [line.text for line in lines.read(text=False)] == [""]


def test_the_first_user_frame_of_a_stored_stack_is_found():
    lines = SourceLines()
    number = lines.first_user_line([(json.__file__, 1, "loads"), (HERE, 3, "train"), (HERE, 9, "main")])
    assert lines.read()[number][1:] == (3, "train", "import json")
    assert lines.first_user_line([(json.__file__, 1, "loads")]) == -1


def test_packages_in_a_pip_target_folder_are_libraries(tmp_path, monkeypatch):
    (tmp_path / "thing-1.0.dist-info").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    lines = SourceLines()
    script, package = str(tmp_path / "train.py"), str(tmp_path / "thing" / "core.py")
    number = lines.first_user_line([(package, 1, "convert"), (script, 7, "main")])
    assert lines.read()[number][:2] == (script, 7)


def test_an_instruction_without_a_line_has_the_first_line_of_its_function():
    lines = SourceLines()
    code = compile("index = current_line(0)", HERE, "exec").replace(co_linetable=b"", co_firstlineno=7)
    found = {"current_line": lines.current_line}
    exec(code, found)
    assert lines.read()[found["index"]].number == 7
