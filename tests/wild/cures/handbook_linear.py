"""Cure `docs/_static/code/zh/model/custom/linear.py` of snowkylin/tensorflow-handbook.

Compile the step.
"""

from tests.wild.edits import move_to_function

RULE = "eager"
EDITS = [move_to_function((47, 51), "@tf.function\ndef train_step():", "y_pred, loss", before_line=46)]
