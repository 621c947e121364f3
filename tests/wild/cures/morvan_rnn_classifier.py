"""Cure `tutorial-contents/402_RNN_classifier.py` of MorvanZhou/PyTorch-Tutorial.

Make batches in two worker processes.
"""

from tests.wild.edits import add_arguments

RULE = "loader"
EDITS = [add_arguments("DataLoader", "num_workers=2, persistent_workers=True")]
