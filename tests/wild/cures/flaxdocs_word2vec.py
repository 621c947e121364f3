"""Cure `examples/sequence/word2vec.py` of mlnomadpy/flaxdocs.

Jit the sampling of a batch.
"""

from tests.wild.edits import move_to_function

RULE = "eager"
EDITS = [move_to_function((236, 243), "@jax.jit\ndef make_batch(idx, key):", "batch, key", before_line=231)]
