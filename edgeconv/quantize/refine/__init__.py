"""A quantized .tflite gone through layer by layer: rounding, bias correction, 4-bit weights."""
