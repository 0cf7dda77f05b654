"""What runs where, how fast, how exactly: comparisons and reports. Changes nothing."""
