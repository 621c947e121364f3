"""Leases: a slot is released when no object refers to its roots any more."""

import gc
import mmap

import numpy as np
import pytest

from forebay.feed.slot import Lease


@pytest.fixture
def root():
    return np.ndarray((4, 3), np.float32, buffer=mmap.mmap(-1, 4096))


@pytest.fixture
def lease(root):
    return Lease(iter([root]))


def test_a_lease_is_released_before_any_batch_is_handed_off(root, lease):
    assert lease.is_released


@pytest.mark.parametrize(
    "derive",
    [
        lambda root: root.view(),
        lambda root: root[1],
        lambda root: root.view()[1][:2].reshape(1, 2).T,
        lambda root: memoryview(root),
        lambda root: root.__dlpack__(),
        lambda root: np.from_dlpack(root)[2],
        lambda root: np.asarray(memoryview(root[1]))[:1],
        lambda root: root.view().ravel().view(np.uint8)[5:],
        lambda root: {"deep": [root[1:2][0]]},
        lambda root: np.frombuffer(root.view(), np.uint8),
    ],
)
def test_objects_derived_from_a_root_keep_the_lease(root, lease, derive):
    derived = derive(root)
    assert not lease.is_released
    del derived
    gc.collect()
    assert lease.is_released
