"""What the backend refuses, in operators it takes."""
