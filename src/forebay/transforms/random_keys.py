"""The random generators of maps, and the keys that seed them.

If a map receives rows, each row has its own random numbers. They depend only on the seed of the map, the epoch, the row
and the index of the map in the pipeline. So they do not change with batch size, shards, workers or a resume.

If a map receives batches, because it comes after `batch()`, each batch has its own random numbers. They change with the
batch size and the shards.

Augmentations such as `fb.flip` draw the numbers of all rows of a batch together. Still, each row has its own numbers.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from forebay.core.rows import row_numbers
from forebay.core.spec import Array
from forebay.order.permutation import derive_key
from forebay.transforms.batch_context import BatchContext

__all__ = ["draw_uniform", "make_rng", "row_generators"]

# The last number of the key of a map that receives rows. It is not 0, because zeros at the end of a key have no effect.
# Without it, the key of the first map would be the key of the shuffle.
ROW_MAP_TAG = 0x726F77
AUGMENTATION_TAG = 0x617567  # the last number of an augmentation's key
_GOLDEN_GAMMA = np.uint64(0x9E3779B97F4A7C15)  # the increment of SplitMix64


def make_rng(seed: int, key: Sequence[int]) -> "np.random.Generator":
    """Return the random generator of one map for one batch."""
    return np.random.Generator(np.random.Philox(key=derive_key(seed, *key)))


def row_generators(seed: int, context: BatchContext) -> "Iterator[np.random.Generator]":
    """Yield the random generator of each row.

    All rows share one object, because making a generator takes 50 times as long as setting its state. The numbers of a
    row are those of Philox with the row id in the highest word of its counter. Setting the state also drops the numbers
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


def draw_uniform(seed: int, context: BatchContext, count: int) -> Array:
    """Return `count` random numbers in [0, 1) for each row.

    The numbers of a row are a hash of its id and the key of the transform, by the output function of SplitMix64. For
    256 rows of 22 numbers, this takes a tenth of the time of `row_generators`.
    """
    key = derive_key(seed, context.epoch, context.passes, context.transform, AUGMENTATION_TAG)
    first, second = np.uint64(key >> 64), np.uint64(key & (2**64 - 1))
    ids = context.row_ids
    numbers = np.arange(ids.start, ids.stop) if isinstance(ids, slice) else ids
    row_keys = _mix_bits(numbers.astype(np.uint64) * _GOLDEN_GAMMA + first)
    steps = np.arange(1, count + 1, dtype=np.uint64) * _GOLDEN_GAMMA
    words = _mix_bits((row_keys ^ second)[:, None] + steps)
    return (words >> np.uint64(11)) * 2.0**-53


def _mix_bits(words: Array) -> Array:
    """Apply the output function of SplitMix64 in place, and return `words`.

    The function is a bijection: different words stay different.
    """
    words ^= words >> np.uint64(30)
    words *= np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(27)
    words *= np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)
    return words
