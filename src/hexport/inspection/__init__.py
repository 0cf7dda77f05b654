"""What is inside a file or folder: models, context binaries, packages, and other tools' formats."""
