"""A ``.pte`` on samples, on the simulator."""
