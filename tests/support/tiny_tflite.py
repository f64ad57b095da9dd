"""Tiny .tflite models, made with the schema's own objects, that LiteRT can run."""

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

BUFFER_ALIGNMENT = 16
OPTIONS = {"FULLY_CONNECTED": schema.FullyConnectedOptionsT, "ADD": schema.AddOptionsT}


class Graph:
    """Tensors and operators in the order they are added; `model()` makes the file's objects."""

    def __init__(self) -> None:
        self.tensors: list[schema.TensorT] = []
        self.buffers = [schema.BufferT()]
        self.operators: list[schema.OperatorT] = []
        self.codes: list[schema.OperatorCodeT] = []

    def tensor(self, name, shape, dtype, *, data=None, scale=None, zero_point=0, dynamic=False):
        tensor = schema.TensorT(
            name=name,
            shape=np.array(shape, np.int32),
            type=getattr(schema.TensorType, dtype.upper()),
            hasRank=True,
        )
        if dynamic:
            tensor.shapeSignature = np.array([-1, *shape[1:]], np.int32)
        if data is not None:
            raw = np.frombuffer(np.ascontiguousarray(data).tobytes(), np.uint8)
            self.buffers.append(schema.BufferT(data=raw))
            tensor.buffer = len(self.buffers) - 1
        if scale is not None:
            scales = np.atleast_1d(np.asarray(scale, np.float32))
            points = np.broadcast_to(np.asarray(zero_point, np.int64), scales.shape).copy()
            tensor.quantization = schema.QuantizationParametersT(scale=scales, zeroPoint=points)
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def operator(self, name, inputs, outputs, *, version=1, options=None):
        """`options` are an object of the schema, where an operator needs other ones than none."""
        builtin = getattr(schema.BuiltinOperator, name, schema.BuiltinOperator.CUSTOM)
        custom = name if builtin == schema.BuiltinOperator.CUSTOM else None
        code = schema.OperatorCodeT(
            deprecatedBuiltinCode=min(builtin, 127),
            builtinCode=builtin,
            customCode=custom,
            version=version,
        )
        self.codes.append(code)
        operator = schema.OperatorT(
            opcodeIndex=len(self.codes) - 1, inputs=list(inputs), outputs=list(outputs)
        )
        if name in OPTIONS and options is None:
            options = OPTIONS[name]()
        if options is not None:
            operator.builtinOptions = options
            kind = type(options).__name__.removesuffix("T")
            operator.builtinOptionsType = getattr(schema.BuiltinOptions, kind)
        self.operators.append(operator)

    def computed(
        self, name, shape, operator, inputs, dtype="float32", *, version=1, options=None, **kind
    ):
        """A tensor that an operator computes; `kind` is what `tensor` takes of it."""
        output = self.tensor(name, shape, dtype, **kind)
        self.operator(operator, inputs, [output], version=version, options=options)
        return output

    def convolution(self, inputs, output, stride=1, *, kind="CONV_2D", version=5) -> None:
        """A convolution with padding; of the kind DEPTHWISE_CONV_2D with a multiplier of 1."""
        name = {"CONV_2D": "Conv2DOptions", "DEPTHWISE_CONV_2D": "DepthwiseConv2DOptions"}[kind]
        options = getattr(schema, f"{name}T")()
        options.padding = schema.Padding.SAME
        options.strideW = options.strideH = stride
        options.dilationWFactor = options.dilationHFactor = 1
        if kind != "CONV_2D":
            options.depthMultiplier = 1
        self.operator(kind, inputs, [output], version=version, options=options)

    def model(self, inputs, outputs, *, signature=None) -> schema.ModelT:
        graph = schema.SubGraphT(
            tensors=self.tensors,
            operators=self.operators,
            inputs=list(inputs),
            outputs=list(outputs),
            name="main",
        )
        model = schema.ModelT(
            version=3,
            description="tiny",
            subgraphs=[graph],
            buffers=self.buffers,
            operatorCodes=self.codes,
        )
        if signature is not None:
            key, input_names, output_names = signature
            model.signatureDefs = [
                schema.SignatureDefT(
                    signatureKey=key,
                    subgraphIndex=0,
                    inputs=_maps(input_names, inputs),
                    outputs=_maps(output_names, outputs),
                )
            ]
        return model


def _maps(names, indices):
    pairs = zip(names, indices, strict=True)
    return [schema.TensorMapT(name=name, tensorIndex=index) for name, index in pairs]


def packed(model: schema.ModelT) -> bytes:
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())


def packed_with_weights_outside(model: schema.ModelT) -> bytes:
    """The model with every buffer's data after the flatbuffer, found by offset and size."""
    weights = [buffer.data for buffer in model.buffers]
    for buffer in model.buffers:
        if buffer.data is not None:
            # Any numbers that are not 0 take the room that the right ones need.
            buffer.data, buffer.offset, buffer.size = None, 2, 2
    model.buffers.append(schema.BufferT(data=np.frombuffer(b"outside flatbuffers", np.uint8)))
    mark = schema.MetadataT(name="buffer_location", buffer=len(model.buffers) - 1)
    model.metadata = [*(model.metadata or []), mark]
    end = len(packed(model))
    tail = b""
    for buffer, data in zip(model.buffers, weights, strict=False):
        if data is not None:
            tail += b"\0" * (-(end + len(tail)) % BUFFER_ALIGNMENT)
            buffer.offset, buffer.size = end + len(tail), len(data)
            tail += bytes(data)
    return packed(model) + tail


WEIGHTS = np.array([[2, -3, 5, 7], [-11, 13, 17, -19], [23, 29, -31, 37]], np.int8)
BIASES = np.array([10, -20, 30], np.int32)


def float_model(*, signature=None, names=("x", "y")) -> schema.ModelT:
    """y = W x + b on [1, 4] float32, W and b constants of 60 bytes."""
    graph = Graph()
    x = graph.tensor(names[0], (1, 4), "float32", dynamic=True)
    w = graph.tensor("w", (3, 4), "float32", data=WEIGHTS.astype(np.float32))
    b = graph.tensor("b", (3,), "float32", data=BIASES.astype(np.float32))
    y = graph.computed(names[1], (1, 3), "FULLY_CONNECTED", [x, w, b])
    return graph.model([x], [y], signature=signature)


def int8_model(*, signature=("serving_default", ["x"], ["y"])) -> schema.ModelT:
    """The same in int8 with int8 ends: weights of 12 bytes, int32 biases."""
    graph = Graph()
    x = graph.tensor("x", (1, 4), "int8", scale=0.5, zero_point=-3)
    w = graph.tensor("w", (3, 4), "int8", data=WEIGHTS, scale=1.0)
    b = graph.tensor("b", (3,), "int32", data=BIASES * 2, scale=0.5)
    y = graph.tensor("y", (1, 3), "int8", scale=64.0, zero_point=5)
    graph.operator("FULLY_CONNECTED", [x, w, b], [y], version=4)
    return graph.model([x], [y], signature=signature)


def run(data: bytes, *inputs: np.ndarray) -> list[np.ndarray]:
    """The first graph's outputs."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_content=data)
    interpreter.allocate_tensors()
    for detail, value in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(detail["index"], value)
    interpreter.invoke()
    return [interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()]


def three_inputs_model(batch: int = 1, counts: tuple[int, ...] = ()) -> schema.ModelT:
    """sum = first + second; twice = count + count. The signature has an order of its own."""
    graph = Graph()
    a, b, total = (graph.tensor(name, (batch, 3), "float32") for name in ("a", "b", "total"))
    n, same = (graph.tensor(name, (batch, *counts), "int32") for name in ("n", "same"))
    graph.operator("ADD", [a, b], [total])
    graph.operator("ADD", [n, n], [same])
    names = ("serve", ["second", "count", "first"], ["twice", "sum"])
    model = graph.model([b, n, a], [same, total], signature=names)
    model.subgraphs[0].inputs, model.subgraphs[0].outputs = [a, b, n], [total, same]
    return model
