"""A saved torch program as a ``.pte`` for one chip's NPU: quantised, compiled, and described."""
