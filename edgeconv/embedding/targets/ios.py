"""The target `ios`: a Swift package with the model, and a run-script phase for Xcode."""

from collections.abc import Mapping
from pathlib import Path

from edgeconv.embedding.accessors import render
from edgeconv.embedding.c_files import CLASS_OPTION, app_values, golden_bytes
from edgeconv.embedding.interface import Embedding, TargetOption
from edgeconv.types.errors import InputRefused

OPTIONS = {
    "class": CLASS_OPTION,
    "runtime": TargetOption(
        help="the product that the package depends on: LiteRT, or TensorFlowLite, which lacks int8 "
        "inputs and outputs",
        default="LiteRT",
        choices=("LiteRT", "TensorFlowLite"),
    ),
    "litert": TargetOption(
        help="which LiteRT the package depends on: from:VERSION, exact:VERSION, branch:NAME or "
        "revision:HASH; a package that others use by version cannot depend on a branch",
        default="branch:release/2.3.0",
        pattern=r"(?:from|exact):\d+\.\d+\.\d+(?:-[A-Za-z0-9.]+)?|branch:[A-Za-z0-9][A-Za-z0-9_./-]*"
        r"|revision:[0-9a-f]{40}",
        example="from:2.3.0",
    ),
}
# The element of the array for each type.
_TYPES = {
    "float32": "Float",
    "int8": "Int8",
    "uint8": "UInt8",
    "bool": "Bool",
    "int16": "Int16",
    "int32": "Int32",
    "int64": "Int64",
    "float64": "Double",
}
# TensorFlowLiteSwift reports int8 as an unknown type.
_NOT_IN_TENSORFLOW_LITE = "int8"
_WORDS = """
    Any Protocol Self Type actor as associatedtype async await break case catch class continue
    default defer deinit do else enum extension fallthrough false fileprivate for func guard if
    import in init inout internal is let nil open operator private protocol public repeat rethrows
    return self static struct subscript super switch throw throws true try typealias var where while
"""
_RESERVED = frozenset(_WORDS.split())
# Names that the generated code uses.
_TAKEN = """
    Accelerator Array Bundle CompiledModel Data Environment Error Interpreter Layout LiteRT
    MemoryLayout Options SHA256 Set SignatureRunner String TensorBuffer TensorBufferRequirements
    TensorFlowLite TensorType URL UTF8 Value XCTestCase
"""


def files(embedding: Embedding) -> Mapping[str, bytes | Path]:
    """See `edgeconv.embedding.interface`."""
    model = embedding.model.read_bytes()
    values = app_values(embedding, model, _TYPES, _RESERVED, _TAKEN.split())
    symbol, name = embedding.symbol, values["class"]
    keys = [signature.key for signature in embedding.artifact.signatures]
    # Not the name of the class, which would hide the module.
    values |= {
        "module": f"{name}Model",
        "SYMBOL": symbol.upper(),
        "product": _product(embedding),
        "requirement": embedding.options["litert"].split(":", 1),
        "signature_index": keys.index(embedding.signature.key),
        "on_tensorflow_lite": not _int8_ports(embedding),
    }
    sources, tests = f"Sources/{name}Model", f"Tests/{name}ModelTests"
    return {
        "Package.swift": render("swift_package.j2", **values),
        f"{sources}/{name}.swift": render("swift_model.j2", **values),
        f"{sources}/{name}Runners.swift": render("swift_runners.j2", **values),
        f"{sources}/Resources/{symbol}.tflite": embedding.model,
        f"{tests}/{name}Tests.swift": render("swift_self_test.j2", **values),
        f"{tests}/Resources/{symbol}_golden.bin": golden_bytes(embedding),
        f"Xcode/{symbol}.sh": render("xcode_script.j2", **values),
        f"Xcode/{symbol}_inputs.xcfilelist": render("xcode_inputs.j2", **values),
        f"Xcode/{symbol}_outputs.xcfilelist": render("xcode_outputs.j2", **values),
    }


def notes(embedding: Embedding) -> tuple[str, ...]:
    """See `edgeconv.embedding.interface`."""
    lines = (
        f"without the package, set {embedding.symbol.upper()}_EMBEDDED to this directory in Xcode, "
        f"and run Xcode/{embedding.symbol}.sh in a build phase",
    )
    if not _int8_ports(embedding):
        return lines
    ports = ", ".join(repr(name) for name in _int8_ports(embedding))
    return (*lines, f"{ports}: TensorFlowLiteSwift has no int8, so the Swift code is for LiteRT")


def _int8_ports(embedding: Embedding) -> list[str]:
    ports = (*embedding.inputs, *embedding.outputs)
    return [port.name for port in ports if port.dtype == _NOT_IN_TENSORFLOW_LITE]


def _product(embedding: Embedding) -> str:
    product = embedding.options["runtime"]
    ports = _int8_ports(embedding)
    if product == "TensorFlowLite" and ports:
        raise InputRefused(
            f"{ports[0]!r} is int8, which TensorFlowLiteSwift lacks",
            hint="use runtime=LiteRT, or convert with --io uint8 or --io float32",
        )
    return product
