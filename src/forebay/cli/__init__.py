"""The commands of `forebay`, one module each."""
