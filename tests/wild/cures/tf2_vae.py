"""Cure `12-VAE/main.py` of dragen1860/TensorFlow-2.x-Tutorials.

Compile the step, and read no values in it.
"""

from tests.wild.edits import move_to_function

RULE = "eager"
EDITS = [
    move_to_function((106, 129), "@tf.function\ndef train_step(x):", "x, reconstruction_loss, kl_div", before_line=102)
]
