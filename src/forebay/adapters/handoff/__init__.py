"""Hand-offs turn slot memory into arrays of a framework, without a copy.

Each framework has one module, which Forebay imports on first use.
"""
