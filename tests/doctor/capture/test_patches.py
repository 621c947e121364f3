"""Hooks: what they write, that they change nothing, and that all of them can be taken out."""

import threading

import pytest

from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.capture.patches import Patches
from forebay.doctor.model.events import Kind


class Library:
    """Somebody's class."""

    def double(self, number):
        return number * 2

    @staticmethod
    def still(number):
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


def watch(patches, *names, owner=Library):
    for name in names:
        patches.watch(owner, name, Kind.UPLOAD, name, describe)


def apis(patches):
    return [event.api for event in patches.ledger.events]


def test_a_call_is_written_down_and_gives_what_it_gave(patches):
    watch(patches, "double")
    assert Library().double(4) == 8
    (event,) = patches.ledger.events
    assert (event.kind, event.api, event.nbytes, event.detail) == ("upload", "double", 8, {"result": 8})
    assert event.start <= event.end


def test_static_and_class_methods_stay_what_they_are(patches):
    watch(patches, "still", "name")
    assert Library.still(3) == 3
    assert Library().still(3) == 3
    assert Child.name() == "Child"
    assert apis(patches) == ["still", "still", "name"]


def test_an_inherited_method_is_put_on_the_class_and_taken_off_again(patches):
    watch(patches, "double", owner=Child)
    assert Child().double(1) == 2
    assert Library().double(1) == 2
    assert apis(patches) == ["double"]
    patches.restore()
    assert "double" not in vars(Child)


def test_what_is_called_from_inside_a_hook_is_not_written_twice(patches):
    watch(patches, "double", "outer")
    assert Library().outer(1) == 3
    assert apis(patches) == ["outer"]


def test_another_threads_call_is_written_meanwhile(patches):
    watch(patches, "double", "outer")
    inside = patches.ledger.enter()
    thread = threading.Thread(target=Library().double, args=(1,))
    thread.start()
    thread.join()
    patches.ledger.leave()
    assert inside
    assert apis(patches) == ["double"]


def test_an_error_passes_unchanged_and_the_next_call_is_seen(patches):
    watch(patches, "fail", "double")
    with pytest.raises(KeyError, match="theirs"):
        Library().fail()
    Library().double(1)
    assert apis(patches) == ["double"]


def test_what_is_not_there_is_noted(patches):
    watch(patches, "no_such_thing")
    assert patches.ledger.notes == [
        "no_such_thing is not watched: tests.doctor.capture.test_patches.Library has no no_such_thing in this version."
    ]


def test_what_cannot_be_replaced_is_noted(patches):
    watch(patches, "bit_length", owner=int)
    assert "bit_length is not watched" in patches.ledger.notes[0]


def test_everything_is_put_back(patches):
    before = dict(vars(Library))
    watch(patches, "double", "still", "name", "outer")
    patches.restore()
    assert dict(vars(Library)) == before


def test_all_but_one_are_put_back(patches):
    watch(patches, "double", "outer")
    patches.restore(but="double")
    Library().outer(1)
    assert apis(patches) == ["double"]


def test_what_is_below_a_hook_that_stays_goes_with_it(patches):
    before = dict(vars(Library))
    patches.watch(Library, "double", Kind.UPLOAD, "below", describe)
    patches.watch(Library, "double", Kind.UPLOAD, "above", describe)
    patches.restore(but="above")
    assert (Library().double(1), apis(patches)) == (2, ["above"])
    patches.restore()
    assert (dict(vars(Library)), patches.ledger.notes) == (before, [])


def test_a_hook_keeps_the_name_of_what_it_stands_for(patches):
    watch(patches, "double")
    assert Library.double.__name__ == "double"
    assert Library.double.__qualname__ == "Library.double"


def test_nothing_is_written_once_it_is_off(patches):
    watch(patches, "double")
    patches.ledger.on = False
    assert Library().double(2) == 4
    assert apis(patches) == []


def test_what_cannot_be_described_is_noted_and_the_script_goes_on(patches):
    patches.watch(Library, "double", Kind.UPLOAD, "double", lambda *_: 1 / 0)
    assert [Library().double(4), Library().double(5)] == [8, 10]
    assert patches.ledger.notes == ["double is seen in part only: ZeroDivisionError: division by zero"]


def test_what_somebody_else_has_put_there_since_stays(patches):
    watch(patches, "double")
    ours, theirs = vars(Library)["double"], lambda self, number: number * 3
    Library.double = theirs
    patches.restore()
    assert vars(Library)["double"] is theirs
    Library.double = ours.__wrapped__
    assert patches.ledger.notes == ["double stays as somebody else has put it since."]
