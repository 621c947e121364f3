"""Cure `ML/TensorFlow/Basics/tutorial7-indepth-functional.py` of aladdinpersson/Machine-Learning-Collection.

Make 50 steps per call.
"""

from tests.wild.edits import add_arguments

RULE = "keras_steps"
EDITS = [add_arguments("compile", "steps_per_execution=50")]
