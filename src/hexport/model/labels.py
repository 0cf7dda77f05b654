"""By what models are told apart: metadata keys of those that hexport wrote, the operator of compiled ones."""

PREPARED = "hexport.prepared"
WRAPPED = "hexport.wrapped"
REDUCED = "hexport.reduced"
COMPILED_OP = "EPContext"
"""Calls a graph of a context binary."""
