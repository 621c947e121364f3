"""Cure `mnist_rnn/main.py` of pytorch/examples.

Make batches in two worker processes.
"""

from tests.wild.edits import add_arguments

RULE = "loader"
EDITS = [add_arguments("DataLoader", "num_workers=2, persistent_workers=True")]
