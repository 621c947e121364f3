"""Every target of the registry that belongs to one framework can be loaded.

`tests/test_framework_cases.py` runs this file once for each framework, in its own process, because frameworks conflict
in one process.
"""

import os

import pytest

from forebay.core import registry

FRAMEWORKS = ("tensorflow", "keras", "torch", "jax")
FRAMEWORK = os.environ["FOREBAY_FRAMEWORK"].split()[0]  # "keras on jax" belongs to keras


def framework_of(target):
    return next((name for name in FRAMEWORKS if name in target), "")


@pytest.mark.parametrize("target", [target for target in registry.all_targets() if framework_of(target) == FRAMEWORK])
def test_a_registered_target_can_be_loaded(target):
    try:
        registry.load(target)
    except ModuleNotFoundError as error:  # a framework that is not installed
        if error.name.startswith("forebay"):
            raise
