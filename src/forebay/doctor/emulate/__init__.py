"""Cures emulated while a script runs: what one line of it calls is done in another way, and all the rest as ever.

A file for what each cure does (`batches`, `uploads`, `substitutes`, `ahead`, `reads`), and one for each framework that
says which of its calls are meant. They lie under the hooks: what a line asks for is still seen, and steps are found as
before.
"""
