"""``build --format pte``: from a PyTorch model to a ``.pte`` that was run beside it."""
