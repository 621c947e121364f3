"""The cost of work in rare steps is a share of the mean step, not of the median step."""

from itertools import accumulate
from types import SimpleNamespace

import pytest

from forebay.doctor.diagnosis.diagnose import run_factor
from forebay.doctor.rules.finding import Finding


class _Steps(list):
    """Profiled steps, given by their lengths in nanoseconds."""

    @property
    def edges(self):
        return [0, *accumulate(self)]


@pytest.mark.parametrize(
    ("rule", "lengths", "factor"),
    [
        ("host", [1, 1, 1, 37], 10),
        ("host", [1, 1, 1, 3], 1),
        ("host", [], 1),
        ("eager", [1, 1, 1, 37], 1),
        ("pauses", [1, 1, 1, 37], 5),
    ],
)
def test_host_work_in_rare_steps_is_a_share_of_the_mean_step(rule, lengths, factor):
    view = SimpleNamespace(step_seconds=1e-9, mean_seconds=5e-9, steps=_Steps(lengths))
    assert run_factor(view, Finding(rule, "", None, 1e-9, ())) == pytest.approx(factor)
