"""The thread that reads files into the page cache. Tests replace the cached share."""

import pytest

from forebay.sources.direct import page_cache
from forebay.sources.direct.page_cache import PageCacheWarmer


@pytest.fixture
def warm(tmp_path, monkeypatch):
    """Return a function that warms one file. The cached share of the file takes the given values in turn."""
    monkeypatch.setattr(page_cache, "_POLL_SECONDS", 0.0)
    (tmp_path / "rows.bin").write_bytes(bytes(5000))

    def run(shares):
        values = [*shares]
        monkeypatch.setattr(page_cache, "cached_share", lambda file: values.pop(0) if len(values) > 1 else values[0])
        warmer = PageCacheWarmer([tmp_path / "rows.bin"])
        warmer.start()
        warmer._thread.join(60)
        assert not warmer._thread.is_alive()
        return warmer

    return run


def test_a_file_is_warm_when_the_kernel_has_read_it(warm):
    assert warm([0.0, 0.0, 0.4, 0.8, 0.96]).is_warm


def test_a_file_that_does_not_stay_in_memory_is_not_warm(warm):
    assert not warm([0.2, 0.5, 0.5]).is_warm


def test_closing_ends_the_wait(tmp_path, monkeypatch):
    (tmp_path / "rows.bin").write_bytes(bytes(5000))
    monkeypatch.setattr(page_cache, "_POLL_SECONDS", 1e6)
    monkeypatch.setattr(page_cache, "cached_share", lambda file: 0.0)
    warmer = PageCacheWarmer([tmp_path / "rows.bin"])
    warmer.start()
    warmer.close()
    assert not warmer.is_warm


def test_a_missing_file_is_not_warm(tmp_path):
    warmer = PageCacheWarmer([tmp_path / "missing.bin"])
    warmer.start()
    warmer._thread.join(60)
    assert not warmer.is_warm
