"""A small network of every refined kind of layer, as floats and as quantisers would store it."""

from typing import NamedTuple

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from tiny_tflite import Graph, packed

OPTIONS = {
    "CONV_2D": schema.Conv2DOptionsT,
    "DEPTHWISE_CONV_2D": schema.DepthwiseConv2DOptionsT,
    "FULLY_CONNECTED": schema.FullyConnectedOptionsT,
}
VERSIONS = {"CONV_2D": 3, "DEPTHWISE_CONV_2D": 3, "FULLY_CONNECTED": 4, "MEAN": 2}
KINDS = ("int8", "int16", "dynamic", "weight-only")
RELU6 = schema.ActivationFunctionType.RELU6
IMAGE = (9, 7, 3)


class Part(NamedTuple):
    """A layer: kernel in the operator's own layout, and its bias, None where it has none."""

    name: str
    operator: str
    kernel: np.ndarray
    bias: np.ndarray | None
    stride: int = 1
    activation: int = RELU6


def parts(*, seed: int = 0, dense_bias: bool = True) -> list[Part]:
    rng = np.random.default_rng(seed)

    def kernel(*shape):
        values = rng.normal(0, 1.2 / np.sqrt(np.prod(shape[1:3]) * shape[-1]), shape)
        return values.astype(np.float32)

    depth = rng.normal(0, 0.5, (1, 3, 3, 16)).astype(np.float32)
    bias = rng.normal(0.3, 0.2, 64).astype(np.float32)
    return [
        Part("first", "CONV_2D", kernel(16, 3, 3, 3), bias[:16], stride=2),
        Part("depth", "DEPTHWISE_CONV_2D", depth, bias[16:32]),
        Part("wide", "CONV_2D", kernel(24, 1, 1, 16), bias[32:56]),
        Part(
            "dense",
            "FULLY_CONNECTED",
            rng.normal(0, 0.4, (5, 24)).astype(np.float32),
            bias[56:61] if dense_bias else None,
            activation=0,
        ),
    ]


def samples(count: int, *, seed: int = 1) -> np.ndarray:
    """Smooth images, so that neighbours say much of each other, as photos do."""
    coarse = np.random.default_rng(seed).uniform(0, 2, (count, 3, 3, 3))
    return np.repeat(np.repeat(coarse, 3, axis=1), 3, axis=2)[:, :9, :7].astype(np.float32)


def float_network(layers: list[Part] | None = None) -> bytes:
    return packed(_Network("float", {}).built(layers or parts()))


def quantised_network(kind: str, layers: list[Part] | None = None) -> bytes:
    """As litert-quantizer stores it: weights of absmax scales, activations of min/max ones."""
    layers = layers or parts()
    return packed(_Network(kind, _ranges(layers)).built(layers))


def outputs(data: bytes, images: np.ndarray, *, delegate: bool = True) -> np.ndarray:
    resolver = "AUTO" if delegate else "BUILTIN_WITHOUT_DEFAULT_DELEGATES"
    interpreter = Interpreter(
        model_content=data, experimental_op_resolver_type=getattr(OpResolverType, resolver)
    )
    runner = interpreter.get_signature_runner()
    return np.concatenate([runner(x=image[None])["y"] for image in images])


class _Network:
    def __init__(self, kind, ranges):
        self.kind = kind
        self.ranges = ranges
        self.graph = Graph()

    @property
    def integer(self):
        return self.kind in ("int8", "int16")

    def built(self, layers: list[Part]) -> schema.ModelT:
        graph = self.graph
        given = graph.tensor("x", (1, *IMAGE), "float32", dynamic=True)
        x = self._bridge("QUANTIZE", given, "image", (1, *IMAGE)) if self.integer else given
        size = (IMAGE[0], IMAGE[1])
        for layer in layers:
            if layer.operator == "FULLY_CONNECTED":
                x = self._mean(x)
            size = tuple(-(-side // layer.stride) for side in size)
            x = self._layer(layer, x, size)
        y = self._bridge("DEQUANTIZE", x, "y", (1, 5)) if self.integer else x
        return graph.model([given], [y], signature=("serving_default", ["x"], ["y"]))

    def _layer(self, layer: Part, x: int, size) -> int:
        dense = layer.operator == "FULLY_CONNECTED"
        channels = layer.kernel.shape[3 if layer.operator == "DEPTHWISE_CONV_2D" else 0]
        weights, scales = self._weights(layer, channels)
        inputs = [x, weights]
        if layer.bias is not None:
            inputs.append(self._bias(layer, x, scales))
        y = self._activation(layer.name, (1, channels) if dense else (1, *size, channels))
        self.graph.operator(
            layer.operator,
            inputs,
            [y],
            version=VERSIONS[layer.operator],
            options=self._options(layer),
        )
        return y

    def _weights(self, layer: Part, channels: int):
        axis = 3 if layer.operator == "DEPTHWISE_CONV_2D" else 0
        name = f"{layer.name}_kernel"
        if self.kind == "float":
            data = layer.kernel
            return self.graph.tensor(name, data.shape, "float32", data=data), np.ones(channels)
        around = tuple(each for each in range(layer.kernel.ndim) if each != axis)
        scales = (np.abs(layer.kernel).max(axis=around) / 127).astype(np.float32)
        spread = scales.reshape([-1 if each == axis else 1 for each in range(layer.kernel.ndim)])
        numbers = np.clip(np.rint(layer.kernel / spread), -127, 127).astype(np.int8)
        index = self.graph.tensor(name, numbers.shape, "int8", data=numbers, scale=scales)
        self.graph.tensors[index].quantization.quantizedDimension = axis
        if self.kind != "weight-only":
            return index, scales
        wide = self.graph.tensor(f"{name}_wide", numbers.shape, "float32")
        self.graph.operator("DEQUANTIZE", [index], [wide], version=5)
        return wide, scales

    def _bias(self, layer: Part, x: int, scales) -> int:
        name, shape = f"{layer.name}_bias", layer.bias.shape
        if not self.integer:
            return self.graph.tensor(name, shape, "float32", data=layer.bias)
        units = self.graph.tensors[x].quantization.scale[0] * scales
        kind = "int32" if self.kind == "int8" else "int64"
        numbers = np.rint(layer.bias / units).astype(kind)
        return self.graph.tensor(name, shape, kind, data=numbers, scale=units)

    def _mean(self, x: int) -> int:
        y = self._activation("mean", (1, int(self.graph.tensors[x].shape[3])))
        axes = self.graph.tensor("axes", (2,), "int32", data=np.array([1, 2], np.int32))
        options = schema.ReducerOptionsT(keepDims=False)
        self.graph.operator("MEAN", [x, axes], [y], version=VERSIONS["MEAN"], options=options)
        return y

    def _activation(self, name: str, shape) -> int:
        stored = "y" if name == "dense" and not self.integer else name
        if not self.integer:
            return self.graph.tensor(stored, shape, "float32", dynamic=True)
        low, high = self.ranges[name]
        if self.kind == "int16":
            scale = max(-low, high) / 32767
            return self.graph.tensor(stored, shape, "int16", scale=scale, dynamic=True)
        scale = (high - low) / 255
        point = int(np.rint(-128 - low / scale))
        return self.graph.tensor(stored, shape, "int8", scale=scale, zero_point=point, dynamic=True)

    def _bridge(self, operator: str, x: int, name: str, shape) -> int:
        if operator == "QUANTIZE":
            y = self._activation(name, shape)
        else:
            y = self.graph.tensor(name, shape, "float32", dynamic=True)
        self.graph.operator(operator, [x], [y], version=2)
        return y

    def _options(self, layer: Part):
        options = OPTIONS[layer.operator]()
        options.fusedActivationFunction = layer.activation
        if layer.operator != "FULLY_CONNECTED":
            options.strideH = options.strideW = layer.stride
            options.dilationHFactor = options.dilationWFactor = 1
            options.padding = schema.Padding.SAME
        if layer.operator == "DEPTHWISE_CONV_2D":
            options.depthMultiplier = 1
        return options


def _ranges(layers: list[Part]) -> dict[str, tuple[float, float]]:
    """Minima and maxima of every activation over some samples."""
    interpreter = Interpreter(
        model_content=float_network(layers),
        experimental_preserve_all_tensors=True,
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    )
    interpreter.allocate_tensors()
    found = {"image": (0.0, 2.0)}
    for image in samples(40, seed=7):
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], image[None])
        interpreter.invoke()
        for detail in interpreter.get_tensor_details():
            name = {"y": "dense"}.get(detail["name"], detail["name"])
            if name in ("mean", "dense", *(layer.name for layer in layers)):
                values = interpreter.get_tensor(detail["index"])
                low, high = found.get(name, (0.0, 0.0))
                found[name] = (min(low, float(values.min())), max(high, float(values.max())))
    return found
