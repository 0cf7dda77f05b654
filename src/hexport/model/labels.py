"""Metadata keys by which hexport marks the models that it wrote."""

PREPARED = "hexport.prepared"
WRAPPED = "hexport.wrapped"
REDUCED = "hexport.reduced"
