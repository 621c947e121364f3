"""Cure `examples/advi.py` of jax-ml/jax.

Remove the call of `pause`, in which the script waits for its figure to be drawn.
"""

from tests.wild.edits import drop_call

RULE = "host"
EDITS = [drop_call("pause")]
