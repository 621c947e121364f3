"""The random generators of maps, and the keys that seed them.

Random numbers belong to a row if a map receives rows. They depend only on the seed of the map, the epoch, the row and
the index of the map in the pipeline. Therefore batch size, shards, workers and a resume do not change them.

After `batch()`, a map receives batches. Then the numbers belong to the batch, and change with batch size and shards.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from forebay.core.rows import row_numbers
from forebay.order.permutation import derive_key
from forebay.transforms.batch_context import BatchContext

__all__ = ["make_rng", "row_generators"]

# The last number of a row map's key. Without it, the zeros at the end of a key would have no effect, and the key of the
# first map would be the key of the shuffle.
ROW_MAP_TAG = 0x726F77


def make_rng(seed: int, key: Sequence[int]) -> "np.random.Generator":
    """Return the random generator of one map for one batch."""
    return np.random.Generator(np.random.Philox(key=derive_key(seed, *key)))


def row_generators(seed: int, context: BatchContext) -> "Iterator[np.random.Generator]":
    """Yield the random generator of each row.

    All rows share one object, because a new generator takes 50 times as long as setting its state. The numbers of a row
    are those of Philox with the row id in the highest word of its counter. Setting the state also drops the numbers
    that the previous row has left in the generator's buffer.
    """
    key = derive_key(seed, context.epoch, context.passes, context.transform, ROW_MAP_TAG)
    bit_generator = np.random.Philox(key=key)
    generator = np.random.Generator(bit_generator)
    # Plain integers: NumPy needs twice the time to set the state from arrays.
    counter_and_key = {"counter": (0, 0, 0, 0), "key": tuple(bit_generator.state["state"]["key"].tolist())}
    no_buffer = {"buffer": (0, 0, 0, 0), "buffer_pos": 4, "has_uint32": 0, "uinteger": 0}
    state: Any = {"bit_generator": "Philox", "state": counter_and_key, **no_buffer}
    for row_id in row_numbers(context.row_ids):
        counter_and_key["counter"] = (0, 0, 0, row_id)
        bit_generator.state = state
        yield generator
