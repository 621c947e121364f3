"""Cure `tutorial-contents/502_GPU.py` of MorvanZhou/PyTorch-Tutorial.

Make batches in 16 worker processes.
"""

from tests.wild.edits import add_arguments

RULE = "loader"
EDITS = [add_arguments("DataLoader", "num_workers=16, persistent_workers=True")]
