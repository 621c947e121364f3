"""Cure `benchmarks/nnx_simple_training.py` of google/flax.

Flatten the modules once, before the loop.
"""

from tests.wild.edits import insert_before, set_arguments, wrap_function

RULE = "nnx_modules"
EDITS = [
    set_arguments("train_step_nnx", "batch"),
    wrap_function("train_step_nnx", "cached_", ""),
    insert_before(126, "cached_train_step_nnx = nnx.cached_partial(train_step_nnx, model, optimizer)"),
]
