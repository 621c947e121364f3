"""Cure `examples/keras_recipes/memory_efficient_embeddings.py` of keras-team/keras-io.

Make 50 steps per call.
"""

from tests.wild.edits import add_arguments

RULE = "keras_steps"
EDITS = [add_arguments("compile", "steps_per_execution=50")]
