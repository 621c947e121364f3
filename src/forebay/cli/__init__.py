"""The commands, one file each; only these own a console."""
