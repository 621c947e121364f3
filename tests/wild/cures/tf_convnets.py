"""Cure `main.py` of marload/ConvNets-TensorFlow2.

Compile the step.
"""

from tests.wild.edits import decorate

RULE = "eager"
EDITS = [decorate("train_step", "tf.function")]
