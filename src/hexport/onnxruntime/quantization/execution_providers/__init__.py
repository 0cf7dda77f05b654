"""``onnxruntime.quantization.execution_providers``."""
