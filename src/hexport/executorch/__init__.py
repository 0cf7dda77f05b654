"""ExecuTorch: a torch program lowered to a ``.pte`` for the NPU, run, verified and taken apart.

Neither torch nor executorch is imported on this side: both live in a toolchain of their own.
"""
