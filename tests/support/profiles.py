"""Hypothesis profiles: `dev` for every run, `ci` for the long checks. HYPOTHESIS_PROFILE selects one.

`dev` tries the same examples in every run, so that a new failure comes from a change. `ci` tries new examples.
"""

import os

from hypothesis import HealthCheck, settings

__all__ = ["FEW_EXAMPLES", "MANY_EXAMPLES"]

# A busy machine may pause for a second, so no example has a deadline.
_UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

settings.register_profile("dev", _UNTIMED, max_examples=12, derandomize=True)
settings.register_profile("ci", _UNTIMED, max_examples=300)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

# For properties whose single example takes a large part of a second.
FEW_EXAMPLES = settings(max_examples=max(10, settings.default.max_examples // 10))
# For properties whose examples take some milliseconds and rarely find a fault, such as damaged files.
MANY_EXAMPLES = settings(max_examples=max(200, settings.default.max_examples))
