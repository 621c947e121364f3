"""Messages of all errors are safe to print."""

import pytest

from forebay import errors

CLASSES = [getattr(errors, name) for name in errors.__all__]


@pytest.mark.parametrize("error", CLASSES)
def test_a_message_escapes_control_characters(error):
    assert str(error("a\x1b]0;title\x07\x9b2J\u202e\udcff.npy\nis damaged: é")) == (
        "a\\x1b]0;title\\x07\\x9b2J\\u202e\\udcff.npy\nis damaged: é"
    )
