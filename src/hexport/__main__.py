"""``python -m hexport`` is the same as ``hexport``."""

from hexport.cli.main import main

main()
