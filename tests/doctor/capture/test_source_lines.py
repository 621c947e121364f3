"""Which line is responsible: the user's innermost, never a library's, never ours."""

import json
from pathlib import Path

from forebay.doctor.capture.source_lines import Lines

HERE = str(Path(__file__))


def test_the_innermost_line_of_the_users_is_found():
    lines = Lines()
    number = lines.here(0)
    found = lines.read()[number]
    assert found.file == HERE
    assert found.text == "number = lines.here(0)"
    assert found.function == "test_the_innermost_line_of_the_users_is_found"


def test_a_librarys_frames_are_passed_over():
    lines = Lines()
    found = []
    json.loads("{}", object_hook=lambda _: found.append(lines.here(0)))
    json.JSONDecoder(object_hook=lambda _: found.append(lines.here(0))).decode("{}")
    assert [line.file for line in lines.read()] == [HERE, HERE]


def test_the_same_line_has_one_number():
    lines = Lines()
    assert len({lines.here(0) for _ in range(5)}) == 1
    assert len(lines.found) == 1


def test_code_that_is_not_the_users_has_no_line():
    lines = Lines()
    assert lines.of_code(json.loads) == -1
    assert lines.of_code(len) == -1


def test_a_function_of_the_users_is_found_where_it_is_defined():
    lines = Lines()
    number = lines.of_code(test_the_same_line_has_one_number)
    assert lines.read()[number].text == "def test_the_same_line_has_one_number():"


def test_text_can_be_left_out():
    lines = Lines()
    lines.here(0)
    assert [line.text for line in lines.read(text=False)] == [""]


def test_of_frames_that_a_framework_kept_the_users_innermost_is_found():
    lines = Lines()
    number = lines.of_frames([(json.__file__, 1, "loads"), (HERE, 3, "train"), (HERE, 9, "main")])
    assert lines.read()[number][1:] == (3, "train", "import json")
    assert lines.of_frames([(json.__file__, 1, "loads")]) == -1


def test_packages_in_a_folder_that_pip_installed_into_are_not_the_users(tmp_path, monkeypatch):
    (tmp_path / "thing-1.0.dist-info").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    lines = Lines()
    script, package = str(tmp_path / "train.py"), str(tmp_path / "thing" / "core.py")
    number = lines.of_frames([(package, 1, "convert"), (script, 7, "main")])
    assert lines.read()[number][:2] == (script, 7)
