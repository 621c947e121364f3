"""Runs of PyTorch without a debug setting.

`test_framework_cases.py` runs this file in the process of PyTorch, because frameworks conflict in one process.
"""

import torch
from tests.doctor.emulate.emulated import without_setting


def test_anomaly_mode_is_kept_off():
    def loop():
        torch.autograd.set_detect_anomaly(True)
        with torch.autograd.set_detect_anomaly(True):
            return torch.is_anomaly_enabled()

    assert without_setting("torch.autograd.set_detect_anomaly", loop) == (False, 2)
    assert not torch.is_anomaly_enabled()


def test_another_setting_is_left_as_it_is():
    def loop():
        torch.use_deterministic_algorithms(True)
        is_on = torch.are_deterministic_algorithms_enabled()
        torch.use_deterministic_algorithms(False)
        return is_on

    assert without_setting("torch.autograd.set_detect_anomaly", loop) == (True, 0)
    assert without_setting("torch.use_deterministic_algorithms", loop) == (False, 1)


def test_the_profiler_is_kept_off():
    def loop():
        with torch.profiler.profile() as profiler:
            profiler.step()
            inside = torch.autograd._profiler_enabled()
        with torch.autograd.profiler.profile():
            return inside, torch.autograd._profiler_enabled()

    result, replaced = without_setting("torch.profiler", loop)
    assert result == (False, False)
    assert replaced
