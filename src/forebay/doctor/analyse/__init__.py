"""From a capture to findings: steps, what each is made of, and rules that name causes. Pure."""
