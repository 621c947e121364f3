"""Hooks record calls, change no result, and can all be removed."""

import threading

import pytest

from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.capture.patches import Patches
from forebay.doctor.model.events import EventKind


class Library:
    """A class of a framework, whose methods the tests hook."""

    def double(self, number):
        return number * 2

    @staticmethod
    def identity(number):
        return number

    @classmethod
    def name(cls):
        return cls.__name__

    def fail(self):
        raise KeyError("theirs")

    def outer(self, number):
        return self.double(number) + 1


class Child(Library):
    pass


@pytest.fixture
def patches():
    made = Patches(Ledger())
    yield made
    made.restore()


def describe(result, *args, **kwargs):
    return 8, {"result": result}


def hook(patches, *names, owner=Library):
    for name in names:
        patches.hook(owner, name, EventKind.UPLOAD, name, describe)


def apis(patches):
    return [event.api for event in patches.ledger.events]


def test_a_call_is_recorded_and_returns_its_result(patches):
    hook(patches, "double")
    assert Library().double(4) == 8
    (event,) = patches.ledger.events
    assert (event.kind, event.api, event.nbytes, event.detail) == ("upload", "double", 8, {"result": 8})
    assert event.start <= event.end


def test_static_and_class_methods_keep_their_kind(patches):
    hook(patches, "identity", "name")
    assert Library.identity(3) == 3
    assert Library().identity(3) == 3
    assert Child.name() == "Child"
    assert apis(patches) == ["identity", "identity", "name"]


def test_a_hook_on_an_inherited_method_is_removed_from_the_subclass(patches):
    hook(patches, "double", owner=Child)
    assert Child().double(1) == 2
    assert Library().double(1) == 2
    assert apis(patches) == ["double"]
    patches.restore()
    assert "double" not in vars(Child)


def test_calls_nested_in_a_recorded_call_are_not_recorded(patches):
    hook(patches, "double", "outer")
    assert Library().outer(1) == 3
    assert apis(patches) == ["outer"]


def test_a_call_of_another_thread_during_a_recorded_call_is_recorded(patches):
    hook(patches, "double", "outer")
    is_outermost = patches.ledger.begin()
    thread = threading.Thread(target=Library().double, args=(1,))
    thread.start()
    thread.join()
    patches.ledger.end()
    assert is_outermost
    assert apis(patches) == ["double"]


def test_an_error_passes_unchanged_and_the_next_call_is_recorded(patches):
    hook(patches, "fail", "double")
    with pytest.raises(KeyError, match="theirs"):
        Library().fail()
    Library().double(1)
    assert apis(patches) == ["double"]


def test_a_missing_attribute_is_noted(patches):
    hook(patches, "no_such_thing")
    assert patches.ledger.notes == [
        "no_such_thing is not recorded: tests.doctor.capture.test_patches.Library has no no_such_thing in this version."
    ]


def test_an_attribute_that_cannot_be_replaced_is_noted(patches):
    hook(patches, "bit_length", owner=int)
    assert "bit_length is not recorded" in patches.ledger.notes[0]


def test_restore_restores_all_attributes(patches):
    before = dict(vars(Library))
    hook(patches, "double", "identity", "name", "outer")
    patches.restore()
    assert dict(vars(Library)) == before


def test_restore_can_keep_one_hook(patches):
    hook(patches, "double", "outer")
    patches.restore(except_api="double")
    Library().outer(1)
    assert apis(patches) == ["double"]


def test_two_hooks_of_one_function_are_removed_even_if_the_outer_hook_was_kept_first(patches):
    before = dict(vars(Library))
    patches.hook(Library, "double", EventKind.UPLOAD, "below", describe)
    patches.hook(Library, "double", EventKind.UPLOAD, "above", describe)
    patches.restore(except_api="above")
    assert (Library().double(1), apis(patches)) == (2, ["above"])
    patches.restore()
    assert (dict(vars(Library)), patches.ledger.notes) == (before, [])


def test_a_hook_has_the_name_of_its_original(patches):
    hook(patches, "double")
    assert Library.double.__name__ == "double"
    assert Library.double.__qualname__ == "Library.double"


def test_nothing_is_recorded_when_the_ledger_is_off(patches):
    hook(patches, "double")
    patches.ledger.is_on = False
    assert Library().double(2) == 4
    assert apis(patches) == []


def test_an_error_of_describe_is_noted_and_the_call_succeeds(patches):
    patches.hook(Library, "double", EventKind.UPLOAD, "double", lambda *_: 1 / 0)
    assert [Library().double(4), Library().double(5)] == [8, 10]
    (note,) = patches.ledger.notes
    assert note.startswith("double is recorded only in part: ZeroDivisionError in test_patches.py:")


def test_a_later_replacement_by_other_code_stays(patches):
    hook(patches, "double")
    ours, theirs = vars(Library)["double"], lambda self, number: number * 3
    Library.double = theirs
    patches.restore()
    assert vars(Library)["double"] is theirs
    Library.double = ours.__wrapped__
    assert patches.ledger.notes == ["double was not restored, because other code has replaced it during profiling."]
