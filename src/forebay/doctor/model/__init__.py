"""Data types that the stages of the doctor exchange."""
