"""Images inside other files: one module for each format. `forebay.core.registry` loads them by suffix."""
