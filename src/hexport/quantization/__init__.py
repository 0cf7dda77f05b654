"""From float to integers: calibration, encodings, the plan of precisions, and the search for a good one."""
