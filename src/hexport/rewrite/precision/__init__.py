"""What fp16 cannot hold on the way, computed so that it can."""
