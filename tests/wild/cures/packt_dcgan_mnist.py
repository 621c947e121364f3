"""Call the model in place of `predict`."""

from tests.wild.edits import call_instead

RULE = "rebuilt"
EDITS = [call_instead("predict", "generator")]
