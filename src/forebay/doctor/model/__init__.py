"""Data types that the packages of the doctor share, and text formats of the reports."""
