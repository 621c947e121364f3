"""Hand-offs: slot memory becomes arrays of a framework, without a copy. One file a framework, imported on demand."""
