"""Uploads of single arrays to a device."""
