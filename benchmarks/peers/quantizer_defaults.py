"""A recipe of litert-quantizer with all its defaults, but float inputs and outputs.

python quantizer_defaults.py FLOAT.tflite SAMPLES.npz TARGET.tflite RECIPE

RECIPE is a name in its module recipe, such as static_wi8_ai8. Its calibration is
`Quantizer.calibrate` as it comes: an exponential moving average of each sample's range.
"""

import sys
from pathlib import Path

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from edgeconv.system.store import quantizer_module

algorithm_manager, qtyping = map(quantizer_module, ("algorithm_manager", "qtyping"))
quantizer, recipe = map(quantizer_module, ("quantizer", "recipe"))
model, samples, target, name = sys.argv[1:]
work = quantizer.Quantizer(model, getattr(recipe, name)())
result = None
if work.need_calibration:
    for boundary in (qtyping.TFLOperationName.INPUT, qtyping.TFLOperationName.OUTPUT):
        work.update_quantization_recipe(
            ".*", boundary, algorithm_key=algorithm_manager.AlgorithmName.NO_QUANTIZE
        )
    with np.load(samples) as archive:
        data = {key: archive[key] for key in archive.files}
    (signature,) = Interpreter(model).get_signature_list()
    count = len(next(iter(data.values())))
    fed = [{key: x[index : index + 1] for key, x in data.items()} for index in range(count)]
    result = work.calibrate({signature: fed})
Path(target).write_bytes(work.quantize(result).quantized_model)
