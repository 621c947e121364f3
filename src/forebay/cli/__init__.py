"""The command line: `forebay COMMAND`, one module per command."""
