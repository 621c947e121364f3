"""Read-back of results from a device to the host, and the check for finite values."""
