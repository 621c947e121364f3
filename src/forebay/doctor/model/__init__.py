"""Data types that the stages of the doctor share, and functions that format numbers for reports."""
