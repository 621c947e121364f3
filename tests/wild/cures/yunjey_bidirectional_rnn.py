"""Cure `tutorials/02-intermediate/bidirectional_recurrent_neural_network/main.py` of yunjey/pytorch-tutorial.

Make batches in 16 worker processes.
"""

from tests.wild.edits import add_arguments

RULE = "loader"
EDITS = [add_arguments("DataLoader", "num_workers=16, persistent_workers=True")]
