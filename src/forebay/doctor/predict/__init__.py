"""What a cure would win: the captured timeline, changed as the cure would change it, and run again on paper. Pure."""
