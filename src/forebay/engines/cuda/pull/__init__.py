"""Rows that a device fetches by itself, or keeps."""
