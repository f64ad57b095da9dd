"""The operators that LiteRT computes right on integers, and what replaces the others.

An operator without a right kernel for the integers of a recipe either becomes others that have one
and give the same (`model.tflite.rewriting`), or stays in float. The kernels were measured with
ai-edge-litert 2.3 on single operators; tests/unit/model/tflite/test_kernels.py repeats it.
"""

from typing import Literal, NamedTuple

IntegerType = Literal["int8", "int16"]
# What an operator becomes that nothing replaces.
_ITSELF = "itself, in float"
# What sets the scale of an operator's output: litert-quantizer, which quantizes the operator
# itself; the values of the output; the input, since the kernel passes integers on; a number that
# the kernel demands; or nothing, where the output is made of indices or booleans.
Scales = Literal["litert-quantizer", "values", "input", "kernel", "none"]


# They jump by the divisor, and integers are on the wrong side of a jump too often: what they become
# is right within a step of its input, and is made only where floats are forbidden.
JUMPING = frozenset({"FLOOR_DIV", "FLOOR_MOD"})
_ORDERS = frozenset({"GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL"})
COMPARISONS = _ORDERS | {"EQUAL", "NOT_EQUAL"}
# Where their input is a model's, it is a float that has not been rounded.
JUMPING_AT_INPUTS = JUMPING | _ORDERS | {"BUCKETIZE", "CAST", "CEIL", "FLOOR", "ROUND", "SIGN"}


class IntegerKernel(NamedTuple):
    """For which integers an operator's kernel is right, in this version of LiteRT.

    `trap` says what a kernel does that takes integers and computes something else with them,
    `instead` what the operator becomes where it has no right kernel; both may be "".
    """

    int8: bool
    int16: bool
    scales: Scales
    trap: str = ""
    instead: str = ""

    def takes(self, integers: IntegerType) -> bool:
        """Whether there is a right kernel for these activations."""
        return self.int8 if integers == "int8" else self.int16

    @property
    def stays_float(self) -> bool:
        """Whether neither an integer kernel computes the operator, nor anything that has one."""
        return self.instead == _ITSELF


def _rows(
    names: str, scales: Scales, *, int16: bool = True, instead: str = ""
) -> dict[str, IntegerKernel]:
    return {
        name: IntegerKernel(int8=True, int16=int16, scales=scales, instead=instead)
        for name in names.split()
    }


def _lacking(instead: str, trap: str = "") -> IntegerKernel:
    return IntegerKernel(int8=False, int16=False, scales="values", trap=trap, instead=instead)


KERNELS: dict[str, IntegerKernel] = {
    **_rows(
        "ADD AVERAGE_POOL_2D BATCH_MATMUL BROADCAST_TO CONCATENATION CONV_2D DEPTHWISE_CONV_2D "
        "DYNAMIC_UPDATE_SLICE FULLY_CONNECTED GATHER GATHER_ND GELU LOGISTIC MAXIMUM "
        "MAX_POOL_2D MEAN MIRROR_PAD MUL PACK PAD PADV2 RELU RESHAPE "
        "RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR RSQRT SELECT SELECT_V2 SLICE SOFTMAX SPLIT SQRT "
        "STRIDED_SLICE SUB SUM TANH TRANSPOSE TRANSPOSE_CONV UNPACK",
        "litert-quantizer",
    ),
    **_rows("ABS EXP LEAKY_RELU LOG RELU6", "values"),
    **_rows("REDUCE_PROD", "values"),
    **_rows(
        "BATCH_TO_SPACE_ND EXPAND_DIMS FILL MINIMUM REDUCE_MAX REDUCE_MIN REVERSE_V2 "
        "SPACE_TO_BATCH_ND SPLIT_V SQUEEZE TILE TOPK_V2",
        "input",
    ),
    **_rows("EQUAL GREATER_EQUAL LESS NOT_EQUAL", "none"),
    **_rows("GREATER", "none", int16=False, instead="LESS of its inputs in the other order"),
    **_rows(
        "LESS_EQUAL", "none", int16=False, instead="GREATER_EQUAL of its inputs in the other order"
    ),
    **_rows("ARG_MAX", "none", int16=False, instead="the first index of TOPK_V2"),
    **_rows("ARG_MIN", "none", int16=False),
    **_rows("ONE_HOT", "input", int16=False, instead="SELECT_V2 by a ONE_HOT of booleans"),
    **_rows("PRELU", "values", int16=False, instead="RELU, and MUL of what is below 0"),
    **_rows("ELU", "values", int16=False, instead="RELU, and EXP of what is below 0"),
    **_rows("RELU_N1_TO_1", "values", int16=False, instead="MINIMUM of MAXIMUM"),
    **_rows("HARD_SWISH", "litert-quantizer", int16=False, instead="MUL(x, RELU6(x + 3) / 6)"),
    **_rows(
        "SQUARED_DIFFERENCE", "litert-quantizer", int16=False, instead="MUL(d, d) of d = SUB(x, y)"
    ),
    **_rows("SPACE_TO_DEPTH", "litert-quantizer", int16=False, instead="RESHAPE and TRANSPOSE"),
    **_rows("DEPTH_TO_SPACE", "input", int16=False, instead="RESHAPE and TRANSPOSE"),
    **_rows("LOG_SOFTMAX", "kernel", int16=False, instead="x - max - LOG(SUM(EXP(x - max)))"),
    **_rows("L2_NORMALIZATION", "kernel", int16=False, instead="MUL(x, RSQRT(SUM(MUL(x, x))))"),
    "ADD_N": _lacking("ADD after ADD"),
    "CEIL": _lacking("ROUND(x + 0.5)"),
    "COMPLEX_ABS": _lacking(_ITSELF),
    "COS": _lacking(_ITSELF),
    "CUMSUM": _lacking("FULLY_CONNECTED with a triangle of ones"),
    "DIV": _lacking(
        "MUL(x, DIV(1, y)); DIV of a constant is right",
        "gives the end of its range where x is nearly 0",
    ),
    "FLOOR": _lacking("ROUND(x - 0.5)"),
    "FLOOR_DIV": _lacking("FLOOR(x / y)", "divides the integers without their scales"),
    "FLOOR_MOD": _lacking("x - y * FLOOR(x / y)", "divides the integers without their scales"),
    "IMAG": _lacking(_ITSELF),
    "LOCAL_RESPONSE_NORMALIZATION": _lacking("MUL, FULLY_CONNECTED of neighbors, RSQRT"),
    "NEG": _lacking(
        "SUB for ADD, or weights of the other sign, or MUL(x, -1)",
        "changes the sign of the integers without their zero point",
    ),
    "POW": _lacking("MUL, SQRT, RSQRT or EXP(y * LOG(x)), where y is constant"),
    "REAL": _lacking(_ITSELF),
    "RFFT2D": _lacking(_ITSELF),
    "ROUND": _lacking("QUANTIZE with a scale of 1"),
    "SIGN": _lacking("SELECT_V2 by LESS"),
    "SIN": _lacking(_ITSELF),
    "SQUARE": _lacking("MUL(x, x)"),
}


def has_kernel(operator: str, integers: IntegerType) -> bool:
    """Whether LiteRT computes the operator right on these integers."""
    kernel = KERNELS.get(operator)
    return kernel is not None and kernel.takes(integers)
