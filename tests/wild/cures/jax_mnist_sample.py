"""Cure `jax_sample/mnist_sample.py` of morikatron/snippet.

Jit the gradient, the update and the loss together.
"""

from tests.wild.edits import move_to_function

RULE = "eager"
HEAD = "@jit\ndef train_step(params, mini_batch_x, mini_batch_y):"
EDITS = [move_to_function((75, 77), HEAD, "params, loss", before_line=71)]
