"""What a framework computed, on its way back to the host: one file a framework, imported on use."""
