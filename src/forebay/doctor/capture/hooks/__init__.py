"""What is watched in each framework: a folder each, loaded when the script has imported it."""
