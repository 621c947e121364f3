"""Uploads of single arrays to a device, for `forebay.upload_once`."""
