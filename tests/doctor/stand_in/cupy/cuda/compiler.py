"""A compiler that accepts any source and takes a millisecond."""

import time

COMPILE_SECONDS = 1e-3


def _compile_module_with_cache(source, options=(), arch=None, cache_dir=None, extra_source=None, backend="nvrtc"):
    time.sleep(COMPILE_SECONDS)
