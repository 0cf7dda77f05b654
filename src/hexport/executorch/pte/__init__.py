"""The ``.pte`` file: what is inside, the description beside it, and what can run it."""
