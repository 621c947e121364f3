"""What is watched in each framework: one file each, loaded when the script has imported it."""
