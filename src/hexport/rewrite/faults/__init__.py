"""What the compiler takes and computes wrongly, or dies of, in forms it gets right."""
