"""Do not pause for the figure."""

from tests.wild.edits import drop_call

RULE = "host"
EDITS = [drop_call("pause")]
