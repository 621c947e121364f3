"""Cure `examples/generative/text_generation_with_miniature_gpt.py` of keras-team/keras-io.

Call the model in place of `predict`.
"""

from tests.wild.edits import call_instead, drop_keyword

RULE = "rebuilt"
EDITS = [drop_keyword("predict", "verbose"), call_instead("predict", "self.model")]
