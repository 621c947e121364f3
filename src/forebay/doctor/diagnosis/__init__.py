"""From findings to a diagnosis: which finding comes first, and what each cure saves."""
