"""Cure `01-TF2.0-Overview/fc_train.py` of dragen1860/TensorFlow-2.x-Tutorials.

Prefetch batches.
"""

from tests.wild.edits import wrap_call

RULE = "loader"
EDITS = [wrap_call("batch", "", ".prefetch(tf.data.AUTOTUNE)")]
