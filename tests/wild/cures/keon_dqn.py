"""Cure `dqn.py` of keon/deep-q-learning.

Call the methods for one batch in place of `fit` and `predict`.
"""

from tests.wild.edits import drop_keyword, rename_attribute

RULE = "rebuilt"
EDITS = [
    drop_keyword("fit", "epochs"),
    drop_keyword("fit", "verbose"),
    rename_attribute("fit", "train_on_batch"),
    rename_attribute("predict", "predict_on_batch"),
]
