"""Images that the device decodes."""
