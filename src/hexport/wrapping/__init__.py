"""Context binaries that other tools made become models that ONNX Runtime loads."""
