"""Prefetch batches."""

from tests.wild.edits import wrap_call

RULE = "loader"
EDITS = [wrap_call("batch", "", ".prefetch(tf.data.AUTOTUNE)")]
