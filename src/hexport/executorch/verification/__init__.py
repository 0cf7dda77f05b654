"""``verify`` of a ``.pte``: beside the torch program it was made of, quantised or not, or an ONNX model."""
