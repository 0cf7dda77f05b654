"""Calibration data: where samples come from, how they are checked, and how they are streamed."""

from hexport.quantization.data.calibration import CalibrationData
from hexport.quantization.data.opening import open_calibration
from hexport.quantization.data.preprocessing import Preprocess
from hexport.quantization.data.sample import Progress, Sample
from hexport.quantization.data.sizes import sample_shapes, sized_by_samples

__all__ = [
    "CalibrationData",
    "Preprocess",
    "Progress",
    "Sample",
    "open_calibration",
    "sample_shapes",
    "sized_by_samples",
]
