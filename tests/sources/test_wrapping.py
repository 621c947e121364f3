"""`WrappingSource` forwards every member that does not describe the rows themselves."""

import numpy as np
import pytest

from forebay.core.chunk_policy import ShuffleBlocks
from forebay.core.decision import Decision
from forebay.core.source import AbstractSource, PipelineInput
from forebay.core.spec import ArraySpec, Structure
from forebay.sources.windows import WindowSource

MEMBERS = {
    name
    for kind in (PipelineInput, AbstractSource)
    for name in {**vars(kind), **kind.__annotations__}
    if name[0] != "_"
}
ATTRIBUTES = {
    "row_by_row": True,
    "needs_cluster": True,
    "read_decision": Decision("reads", "slowly", "for a test"),
    "cached_transforms": 3,
    "class_names": ("cat", "dog"),
    "immutable": True,
    "version": "v1",
    "shuffle_blocks": ShuffleBlocks(6, 4),
    "decodes_rows": True,
    "can_prefetch": True,
    "decompressed_nbytes": 100,
    "scratch_row_nbytes": 10,
    "max_scratch_nbytes": 1000,
    "infers_specs": True,
    "plan_version": 7,
    "held_nbytes": 50,
}
CALLS = {"counters", "decisions", "decompress", "close", "gather", "prefetch"}
# Members that a `WrappingSource` does not forward, because they describe its own rows or for the reason given here:
DESCRIBING_ROWS = {
    *("specs", "structure", "stored_rows", "row_lengths", "chunk_policy"),
    *("gather_rows", "gather_columns", "gather_leaves", "windows"),  # the defaults call `gather`
    *("memory", "memory_extents", "file_extents"),  # no extent has a whole row
    *("encoded_images", "for_device_decoder", "why_no_device_decoder"),  # a device decodes rows with one image
    "error_limit",  # `window()` and `pack()` refuse sources that have it
    "identify",  # the functions that make the source set it
    "reopener",  # only sources of one file have it
}


class Inner(AbstractSource):
    """Records calls. Its attributes differ from the defaults."""

    specs, structure = (ArraySpec((), "int64"),), Structure(None)
    infers_specs = plan_version = held_nbytes = None

    def __init__(self):
        self.calls = []
        for name, value in ATTRIBUTES.items():
            setattr(self, name, value)

    def __len__(self):
        return 20

    def gather(self, rows, out):
        self.calls.append("gather")
        out[0][:] = rows

    def prefetch(self, upcoming):
        self.calls.append("prefetch")
        return [rows.tolist() for rows in upcoming]

    def counters(self):
        self.calls.append("counters")
        return {"reads": 5}

    def decisions(self):
        self.calls.append("decisions")
        return ["a decision"]

    def decompress(self):
        self.calls.append("decompress")

    def close(self):
        self.calls.append("close")


ARGUMENTS = {"gather": (slice(0, 2), [np.zeros((2, 3), np.int64)]), "prefetch": (iter([slice(0, 2)]),)}


def test_every_member_of_a_source_is_listed_here():
    assert ATTRIBUTES.keys() | CALLS | DESCRIBING_ROWS == MEMBERS


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_attributes_are_those_of_the_inner_source(name):
    assert getattr(WindowSource(Inner(), slice(0, 20), 1, 1), name) == ATTRIBUTES[name] != getattr(Default(), name)


@pytest.mark.parametrize("name", sorted(CALLS))
def test_calls_reach_the_inner_source(name):
    inner = Inner()
    source = WindowSource(inner, slice(0, 20), 3, 1)
    result = getattr(source, name)(*ARGUMENTS.get(name, ()))
    assert inner.calls == [name]
    expected = {"counters": {"reads": 5}, "decisions": ["a decision"], "prefetch": [[0, 1, 2, 1, 2, 3]]}
    assert result == expected.get(name)


class Default(AbstractSource):
    """A source with the defaults of all members."""

    def __len__(self):
        return 0

    def gather(self, rows, out):
        pass
