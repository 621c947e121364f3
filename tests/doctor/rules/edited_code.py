"""The code that an edit proposes for a script."""

from forebay.doctor.analyse.script_code import ScriptCode
from forebay.doctor.rules.edits import format_edits

__all__ = ["code_after"]


def code_after(source, line, make, *arguments, **keywords):
    code = ScriptCode(source)
    return format_edits(edit.keep_neighbours(code) for edit in make(code, line, *arguments, **keywords))
