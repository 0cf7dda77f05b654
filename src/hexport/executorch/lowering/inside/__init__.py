"""What runs inside the toolchain: it imports Python itself, numpy, torch, torchao and executorch only."""
