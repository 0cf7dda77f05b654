"""``compile``: context binaries for chips, and the proof of what they are."""
