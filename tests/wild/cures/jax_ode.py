"""Cure `ODE.py` of JRowbottomGit/Deep-BSDE-Solver.

Move the update into one jitted function.
"""

from tests.wild.edits import move_to_function

RULE = "eager"
# The mark of the step is a line of its own, so the update begins one line later than in the public file.
EDITS = [move_to_function((57, 59), "@jit\ndef train_step(params, velocity):", "params, velocity", before_line=53)]
