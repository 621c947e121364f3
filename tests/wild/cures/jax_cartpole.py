"""Cure `cartpole_rl.py` of VenusAradhya/rl_toy_project.

Jit the policy and the choice of an action, and read the action after the call.
"""

from tests.wild.edits import call_instead, move_to_function, set_arguments

RULE = "eager"
EDITS = [
    call_instead("int", "jnp.asarray"),
    move_to_function((57, 59), "@jax.jit\ndef choose_action(key, params, obs):", "action, key", before_line=50),
    set_arguments("step", "int(action)"),
]
