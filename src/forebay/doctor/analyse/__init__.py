"""Analysis of a capture: steps, their parts, call sites, and the work of the device."""
