"""The data that the doctor passes between its stages."""
