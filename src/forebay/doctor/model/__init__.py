"""Data types that the stages of the doctor share, and formats of numbers."""
