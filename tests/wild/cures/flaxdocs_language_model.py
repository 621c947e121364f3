"""Cure `examples/training/language_model.py` of mlnomadpy/flaxdocs.

Flatten the modules once, before the loop.
"""

from tests.wild.edits import insert_before, set_arguments, wrap_function

RULE = "nnx_modules"
EDITS = [
    set_arguments("train_step", "x, y"),
    wrap_function("train_step", "cached_", ""),
    insert_before(410, "cached_train_step = nnx.cached_partial(train_step, model, optimizer)"),
]
