"""How a machine is measured, what comes out, and how it is kept."""
