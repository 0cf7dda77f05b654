"""Qualcomm's compiler and simulator: the only room that knows onnxruntime's QNN parts.

Everything native happens in a worker process; what comes back are typed records.
"""
