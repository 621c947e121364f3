"""Where batches end up. `base` says what an engine is; `host` is the specification of all others."""
