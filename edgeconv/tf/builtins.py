"""Which of TensorFlow's operators TFLite has in some form, by its schema."""

from __future__ import annotations

import functools
import re

from edgeconv.tf.tensor_lists import LISTS

# Names of the converter that differ from the schema's by more than versions and underscores.
_OTHER_NAMES = {
    "avgpool": "averagepool2d",
    "avgpool3d": "averagepool2d",
    "biasadd": "add",
    "concat": "concatenation",
    "conv2dbackpropinput": "transposeconv",
    "conv3dbackpropinput": "conv3dtranspose",
    "depthwiseconv2dnative": "depthwiseconv2d",
    "einsum": "batchmatmul",
    "fusedbatchnorm": "mul",
    "inv": "div",
    "lrn": "localresponsenormalization",
    "matmul": "fullyconnected",
    "maxpool": "maxpool2d",
    "maxpool3d": "maxpool2d",
    "partitionedcall": "call",
    "prod": "reduceprod",
    "max": "reducemax",
    "min": "reducemin",
    "all": "reduceall",
    "any": "reduceany",
    "realdiv": "div",
    "reciprocal": "div",
    "sigmoid": "logistic",
    "statefulpartitionedcall": "call",
}


def has_builtin(operator: str) -> bool:
    """Whether TFLite has an operator of TensorFlow, such as "Conv2D", for some shapes and types."""
    bare = re.sub(r"V\d+$", "", operator.removeprefix("Stateless")).replace("_", "").lower()
    return operator in LISTS or _OTHER_NAMES.get(bare, bare) in _schema_names()


@functools.cache
def _schema_names() -> frozenset[str]:
    from ai_edge_litert.schema_py_generated import BuiltinOperator

    names = (name for name in vars(BuiltinOperator) if name.isupper() or "_" in name)
    return frozenset(name.replace("_", "").lower() for name in names)
