"""The rule for large arrays that a script stores in graphs as constants.

If a compiled function reads a global array, the framework stores a copy of the array in every graph that it traces. The
copies take memory on the host and on the device.

The rule only warns: constants cost memory and compile time, not step time.
"""

from collections.abc import Iterator

from forebay.core.spec import format_nbytes
from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.framework import feed_framework, framework_of
from forebay.doctor.analyse.memory import GraphConstants, find_graph_constants
from forebay.doctor.model.formatting import format_count, format_seconds
from forebay.doctor.rules.build_edits import pass_constants
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.fitted_code import fit_line
from forebay.doctor.rules.wording import feed_code

__all__ = ["examine"]

LARGE_NBYTES = 64 << 20  # bytes per graph; the rule does not warn about fewer


def examine(view: CaptureView) -> Iterator[Finding]:
    """Yield one finding per line of user code that puts large constants into graphs."""
    if view.steps is None:  # the doctor found no training loop
        return
    for constants in find_graph_constants(view):
        if constants.nbytes > LARGE_NBYTES:
            yield _finding(view, constants)


def _finding(view: CaptureView, constants: GraphConstants) -> Finding:
    framework = framework_of(view, constants.api)
    # Constants take no step time, so these cures have no `changes`, and their gain is 0.
    basis = "this cure saves memory and compile time, not step time"
    fitted = fit_line(view, constants.line, lambda code, number: pass_constants(code, number, framework))
    code = fitted or _ARGUMENT_CODE.get(framework, _ARGUMENT_CODE["jax"])
    argument = Cure("pass the array as an argument", code, basis)
    feed = Cure(
        "use a feed, which does not copy the array into a graph",
        feed_code(view, feed_framework(view, constants.api)),
        basis,
    )
    amount, times = format_nbytes(constants.nbytes), format_count(constants.times, "time")
    return Finding(
        rule="constants",
        title=f"{constants.api} puts {amount} of arrays into a graph as constants ({times})",
        line=constants.line,
        seconds=0.0,
        cures=(argument,) if fitted else (argument, feed),
        evidence=(
            f"All graphs of this line together contain {format_nbytes(constants.total_nbytes)} of "
            "constants, in addition to the arrays themselves.",
            f"Building the largest graph took {format_seconds(constants.seconds)}. "
            "TensorFlow refuses graphs of more than 2 GiB.",
        ),
    )


_ARGUMENT_CODE = {
    "tensorflow": "@tf.function\ndef step(table, x): ...   # call step(table, x), do not use a global `table`",
    "jax": "@jax.jit\ndef step(table, x): ...   # call step(table, x), do not close over `table`",
    "torch": "class Model(nn.Module):   # self.register_buffer('table', table), not a global\n    ...",
}
