"""Single arrays on their way to a device."""
