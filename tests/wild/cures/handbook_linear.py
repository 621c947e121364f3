"""Compile the step."""

from tests.wild.edits import move_to_function

RULE = "eager"
EDITS = [move_to_function((47, 51), 46, "@tf.function\ndef train_step():", "y_pred, loss")]
