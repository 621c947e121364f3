"""`KerasWatch` is imported on first use. keras_callback_cases.py tests what it records."""

import subprocess
import sys

import pytest

import forebay.doctor


def test_importing_the_doctor_loads_no_keras():
    script = "import sys, forebay.doctor; print('keras' in sys.modules, 'KerasWatch' in forebay.doctor.__all__)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_an_unknown_attribute_of_the_doctor_raises():
    with pytest.raises(AttributeError, match="has no attribute 'Kerasss'"):
        forebay.doctor.Kerasss  # noqa: B018
