"""Cure `10-ColorBot/main.py` of dragen1860/TensorFlow-2.x-Tutorials.

Compile the step.
"""

from tests.wild.edits import move_to_function

RULE = "eager"
EDITS = [
    move_to_function(
        (44, 50), "@tf.function\ndef train_step(labels, chars, sequence_length):", "predictions, loss", before_line=42
    )
]
