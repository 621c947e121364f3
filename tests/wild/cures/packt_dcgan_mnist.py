"""Cure `chapter4-gan/dcgan-mnist-4.2.1.py` of PacktPublishing/Advanced-Deep-Learning-with-Keras.

Call the model in place of `predict`.
"""

from tests.wild.edits import call_instead

RULE = "rebuilt"
EDITS = [call_instead("predict", "generator")]
