"""``verify``: what was made beside what it was made from, on the same inputs."""
