"""`RenamedSource` forwards every member of its source."""

import pickle
from types import FunctionType

import numpy as np
import pytest

from forebay.core.source import AbstractSource, PipelineInput
from forebay.core.spec import flatten
from forebay.sources import renamed
from forebay.sources.arrays import ArraySource
from forebay.sources.renamed import RenamedSource, rename_source
from forebay.testing.sources import SourceTests

X, Y = np.arange(60.0).reshape(20, 3), np.arange(20)
NAMES = flatten({"a": X, "b": Y})[1]
MEMBERS = [
    name
    for kind in (PipelineInput, AbstractSource)
    for name in {**vars(kind), **kind.__annotations__}
    if name[0] != "_"
]


class PrefetchingSource(ArraySource):
    can_prefetch = True


class TestRenamedSource(SourceTests):
    def make_source(self, tmp_path):
        return RenamedSource(PrefetchingSource({"x": X, "y": Y}), NAMES), {"a": X, "b": Y}


def test_arrays_stay_arrays():
    source = rename_source(ArraySource({"x": X, "y": Y}), NAMES)
    assert isinstance(source, ArraySource)
    assert source.structure.paths == source.windows(slice(0, 20), 2, 1).structure.paths == ("a", "b")


@pytest.mark.parametrize("name", MEMBERS)
def test_every_member_is_forwarded(name):
    is_method = isinstance(vars(AbstractSource).get(name, vars(PipelineInput).get(name)), FunctionType | property)
    forwarded = vars(RenamedSource) if is_method else (*renamed._ATTRIBUTES, "specs", "structure", "for_device_decoder")
    assert name in forwarded


def test_the_last_names_are_used_also_after_pickling():
    source = RenamedSource(RenamedSource(ArraySource({"x": X, "y": Y}), NAMES), flatten({"c": X, "d": Y})[1])
    assert list(pickle.loads(pickle.dumps(source)).structure.paths) == ["c", "d"]
