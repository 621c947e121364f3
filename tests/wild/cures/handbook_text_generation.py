"""Cure `source/_static/code/zh/model/text_generation/rnn.py` of snowkylin/tensorflow-handbook.

Compile the step, and print no loss in it.
"""

from tests.wild.edits import drop_call, move_to_function

RULE = "eager"
EDITS = [drop_call("print"), move_to_function((67, 73), "@tf.function\ndef train_step(X, y):", "loss", before_line=65)]
