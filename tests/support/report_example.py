"""A realistic report, fixed to the last digit: digits, seven recipes, one limit broken."""

import math
from typing import Any

import msgspec
from msgspec.structs import replace

from edgeconv import types as t
from edgeconv.statistics.comparison import paired_difference

SAMPLES = 360
FLOAT_RIGHT = 352
CLASSES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
LABELS = tuple((7 * i + i // 50) % 10 for i in range(SAMPLES))
# What each digit is taken for when it is not seen.
_TAKEN_FOR = (6, 8, 3, 8, 9, 9, 0, 9, 3, 3)
TOOLS = {"ai-edge-litert": "2.3.0", "litert-quantizer": "0.10.0", "tensorflow": "2.21.0"}

# recipe: bytes, p50 in µs, samples right, fixed, broken, SNR in dB, share int, share float16
_FIGURES: dict[t.RecipeName, tuple[int, float, int, int, int, float, float, float]] = {
    "float32": (156_912, 61.4, 352, 0, 0, t.MAX_SNR_DB, 0.0, 0.0),
    "float16": (80_140, 62.0, 352, 0, 0, 66.1, 0.0, 0.9996),
    "dynamic": (45_288, 118.7, 351, 0, 1, 34.8, 0.9912, 0.0),
    "weight-only-int8": (45_504, 63.2, 352, 1, 1, 37.5, 0.9912, 0.0),
    "int8": (46_872, 29.8, 350, 1, 3, 27.3, 0.9958, 0.0),
    "int16x8": (48_016, 88.5, 341, 2, 13, 9.4, 0.9958, 0.0),
    "qat": (46_904, 29.9, 353, 2, 1, 18.2, 0.9958, 0.0),
}


def latency(p50_us: float, rounds: int = 3, count: int = 60) -> t.Latency:
    """A skewed sample around `p50_us`: quick as a rule, now and then slow."""

    def one(r: int, i: int) -> float:
        wave = math.sin(1.7 * i + r) + math.sin(0.61 * i * (r + 1))
        slow = 1.9 if (i * 7 + r * 3) % 29 == 0 else 1.0
        return round(p50_us * slow * (1 + 0.035 * wave + 0.02 * r), 2)

    raw = tuple(tuple(one(r, i) for i in range(count)) for r in range(rounds))
    ordered = sorted(sample for samples in raw for sample in samples)
    return t.Latency(
        rounds_us=raw,
        load_us=tuple(2100.0 + 40 * r for r in range(rounds)),
        first_us=tuple(p50_us * 3 for _ in range(rounds)),
        threads=1,
        batch=1,
        p50_us=ordered[len(ordered) // 2],
        p90_us=ordered[len(ordered) * 9 // 10],
        p99_us=ordered[len(ordered) * 99 // 100],
        p50_interval_us=(ordered[len(ordered) * 43 // 100], ordered[len(ordered) * 57 // 100]),
        warmup=tuple(12 + 5 * r for r in range(rounds)),
    )


def accuracy(fixed: int, broken: int) -> t.Accuracy:
    """That of the baseline, but for so many samples."""
    right = FLOAT_RIGHT + fixed - broken
    correct = "0" * broken + "1" * right + "0" * (SAMPLES - right - broken)
    return t.Accuracy(
        value=right / SAMPLES, samples=SAMPLES, correct=correct, predicted=predicted(correct)
    )


def predicted(correct: str) -> tuple[int, ...]:
    """The class of every sample: the label where it is right, else what it is taken for."""
    pairs = zip(LABELS, correct, strict=True)
    return tuple(label if right == "1" else _TAKEN_FOR[label] for label, right in pairs)


def f1(value: float) -> t.Accuracy:
    return t.Accuracy(metric="f1", value=value, samples=SAMPLES)


def baseline() -> t.Measurement:
    return t.Measurement(
        name="digits_cnn",
        role="baseline",
        runtime="tensorflow 2.21.0",
        sha256="b" * 64,
        size_bytes=231_004,
        gzip_size_bytes=151_200,
        latency=latency(412.0),
        peak_memory_bytes=612_000_000,
        accuracy=accuracy(0, 0),
        metrics=(f1(0.97751),),
        batched_us=tuple(9000.0 + 35 * (i % 11) for i in range(20)),
        batched_size=32,
        size_ratio=1.0,
        latency_ratio=6.71,
    )


def measurement(recipe: t.RecipeName) -> t.Measurement:
    size, p50, right, fixed, broken, *_ = _FIGURES[recipe]
    accurate = accuracy(fixed, broken)
    assert accurate.value == right / SAMPLES
    floats = accuracy(0, 0)
    drop, low, high = paired_difference(floats.correct, accurate.correct)
    return t.Measurement(
        name=f"digits_cnn-{recipe}",
        role="artifact",
        runtime="litert 2.3.0",
        sha256=f"{size:064x}",
        size_bytes=size,
        gzip_size_bytes=size * 9 // 10,
        recipe=recipe,
        latency=latency(p50),
        peak_memory_bytes=38_200_000 + size,
        arena_bytes=12_288 if recipe in ("int8", "qat") else 49_152,
        accuracy=accurate,
        metrics=(f1(round(accurate.value - 0.0003, 5)),),
        agreement=(agreement(recipe),),
        profile=profile(p50, recipe) if recipe in ("float32", "int8", "int16x8") else None,
        layer_errors=layer_errors(recipe) if recipe in ("dynamic", "int8", "int16x8") else (),
        oldest_runtime="2.3.0" if recipe == "int8" else "1.15.0",
        size_ratio=size / 231_004,
        latency_ratio=p50 / 61.4,
        accuracy_drop=drop,
        accuracy_drop_interval=(low, high),
        fixed=fixed,
        broken=broken,
    )


def agreement(recipe: t.RecipeName) -> t.Agreement:
    *_, fixed, broken, snr_db, _, _ = _FIGURES[recipe]
    noise = 0.0 if snr_db == t.MAX_SNR_DB else 10 ** (-snr_db / 20)
    return t.Agreement(
        output="probabilities",
        reference="baseline",
        samples=SAMPLES,
        flips=fixed + broken,
        cosine=1 - noise**2 / 2,
        snr_db=snr_db,
        max_error=0.9 * noise,
        span=(0.0, 0.9999),
        varies_by=0.9999,
    )


# operator, its output, share of the time, distance from the output's SNR in dB
_LAYERS = (
    ("CONV_2D", "digits_cnn/conv2d/Relu", 0.31, 14.0),
    ("MAX_POOL_2D", "digits_cnn/max_pooling2d/MaxPool", 0.06, 13.1),
    ("CONV_2D", "digits_cnn/conv2d_1/Relu", 0.38, 6.2),
    ("RESHAPE", "digits_cnn/flatten/Reshape", 0.01, 6.2),
    ("FULLY_CONNECTED", "digits_cnn/dense/Relu", 0.12, -2.4),
    ("FULLY_CONNECTED", "digits_cnn/dense_1/BiasAdd", 0.03, 1.7),
    ("SOFTMAX", "StatefulPartitionedCall_1:0", 0.02, 0.0),
)


def profile(p50_us: float, recipe: t.RecipeName) -> t.Profile:
    delegate = "" if recipe == "int16x8" else "XNNPACK"
    return t.Profile(
        total_us=p50_us,
        operators=tuple(
            t.OperatorTime(
                index=i,
                operator=operator,
                layer=layer,
                tensor=layer,
                delegate="" if operator == "RESHAPE" else delegate,
                mean_us=round(p50_us * share, 3),
            )
            for i, (operator, layer, share, _) in enumerate(_LAYERS)
        ),
    )


def layer_errors(recipe: t.RecipeName) -> tuple[t.LayerError, ...]:
    *_, snr_db, _, _ = _FIGURES[recipe]
    return tuple(
        t.LayerError(
            layer=layer,
            tensor=layer,
            operator=operator,
            samples=64,
            snr_db=round(snr_db + above, 1),
            max_error=round(3 * 10 ** (-(snr_db + above) / 20), 5),
        )
        for operator, layer, _, above in _LAYERS
    )


def without_accuracy(recipe: t.RecipeName) -> t.Measurement:
    full = measurement(recipe)
    return t.Measurement(
        **_file_of(full),
        runtime=full.runtime,
        latency=full.latency,
        latency_ratio=full.latency_ratio,
    )


def did_not_run(recipe: t.RecipeName) -> t.Measurement:
    error = "Didn't find op for builtin opcode 'FULLY_CONNECTED' version '12'.\nIt failed."
    return t.Measurement(
        **_file_of(measurement(recipe)), runtime="tflite-runtime 2.14.0", error=error
    )


def _file_of(row: t.Measurement) -> dict[str, Any]:
    """What a file is, whatever came of measuring it."""
    names = ("name", "role", "sha256", "size_bytes", "recipe", "size_ratio")
    return {name: getattr(row, name) for name in names}


_CALIBRATION = t.CalibrationRecord(
    signature="serving_default", source="sklearn:digits", samples=200, sha256="c" * 64,
    range="minmax",
)  # fmt: skip
_LADDER = (
    t.LadderStep(attempt="as it is", failed="operator WHILE computes in float"),
    t.LadderStep(attempt="loops unrolled, batch fixed to 1"),
)
_TARGET = t.TargetCheck(
    runtime="tflite_runtime 2.14.0", python="3.11.7", outputs=(),
    cost="dense weights have one scale for all channels",
)  # fmt: skip


def artifact(recipe: t.RecipeName) -> t.Artifact:
    size, *_, snr_db, share_int, share_f16 = _FIGURES[recipe]
    integer = recipe in ("int8", "int16x8", "qat")
    return t.Artifact(
        name="digits_cnn",
        file=f"digits_cnn_{recipe}.tflite",
        key=f"{size + 1:064x}",
        sha256=f"{size:064x}",
        size_bytes=size,
        source_path="/models/digits_cnn/1",
        source_kind="saved_model",
        source_sha256="5" * 64,
        recipe=t.Recipe(
            name=recipe,
            input_type="int8" if recipe == "int8" else "float32",
            qat=qat().settings if recipe == "qat" else None,
        ),
        engine="tflite" if recipe in ("float32", "float16", "qat") else "litert",
        signatures=(_signature(recipe),),
        operators=(
            t.OperatorCount(name="CONV_2D", version=3 if integer else 1, count=2),
            t.OperatorCount(name="FULLY_CONNECTED", version=4 if integer else 1, count=2),
            t.OperatorCount(name="MAX_POOL_2D", version=2, count=1),
        ),
        quantized_weight_share=share_int,
        float16_weight_share=share_f16,
        float_operators=() if integer else ("CONV_2D", "FULLY_CONNECTED"),
        verification=t.Verification(
            reference="digits_cnn_float32.tflite",
            samples=64,
            synthetic=False,
            runtime="litert 2.3.0",
            outputs=(_output_error(snr_db),),
            warnings=("an output is far from the float model's",) if snr_db < 10 else (),
        ),
        calibration=(_CALIBRATION,) if integer else (),
        preprocessing={"": t.Preprocessing(scale=0.0625)},
        ladder=_LADDER if recipe == "int16x8" else (),
        target=_TARGET if recipe == "int8" else None,
        qat=qat() if recipe == "qat" else None,
        notes=("one bias of 10 numbers stays float32",) if recipe == "dynamic" else (),
        tools=TOOLS,
    )


def _signature(recipe: t.RecipeName) -> t.Signature:
    image = t.TensorSpec(name="image", shape=(-1, 8, 8, 1), dtype="float32")
    if recipe == "int8":
        image = t.TensorSpec(
            name="image", shape=(1, 8, 8, 1), dtype="int8", scale=(0.00392157,), zero_point=(-128,)
        )
    scores = t.TensorSpec(name="probabilities", shape=(-1, 10), dtype="float32")
    return t.Signature(key="serving_default", inputs=(image,), outputs=(scores,))


def _output_error(snr_db: float) -> t.OutputError:
    noise = 0.0 if snr_db == t.MAX_SNR_DB else 10 ** (-snr_db / 20)
    return t.OutputError(
        output="probabilities",
        snr_db=snr_db,
        max_abs_error=0.9 * noise,
        rms_error=0.3 * noise,
        rms_reference=0.3,
        cosine=1 - noise**2 / 2,
        argmax_agreement=1.0 if snr_db > 30 else 0.9844 if snr_db > 20 else 0.9375,
        span=(0.0, 0.9998),
        varies_by=0.9991,
        samples=64,
    )


def training() -> t.TrainingRecord:
    return t.TrainingRecord(
        model="digits_cnn",
        strategy="MirroredStrategy",
        loop="custom",
        replicas=2,
        devices=("CPU:0", "CPU:1"),
        cross_device_ops="reduction-to-one",
        global_batch=64,
        steps_per_epoch=20,
        learning_rate=0.005,
        seed=7,
        epochs=tuple(
            t.Epoch(
                metrics={"loss": loss, "accuracy": right},
                validation={"loss": val_loss, "accuracy": val_right},
                samples=1280,
                seconds=seconds,
            )
            for loss, right, val_loss, val_right, seconds in (
                (1.214, 0.6312, 0.5311, 0.8472, 6.2),
                (0.342, 0.9018, 0.2204, 0.9375, 4.1),
                (0.187, 0.9471, 0.1412, 0.9722, 4.0),
                (0.121, 0.9687, 0.1530, 0.9653, 4.1),
            )
        ),
        best_epoch=3,
        stopped="no better validation result for 1 epoch",
        resumed_at=(40,),
        train_samples=1293,
        validation_samples=144,
        test_samples=SAMPLES,
        test_metrics={"loss": 0.1034, "accuracy": FLOAT_RIGHT / SAMPLES},
        seconds=18.4,
        wall_seconds=26.9,
        saved_model="/models/digits_cnn/1",
        keras_file="/models/digits_cnn/1.keras",
        tools={"tensorflow": "2.21.0", "tf-keras": "2.21.0"},
    )


def qat() -> t.QatRecord:
    return t.QatRecord(
        settings=t.Qat(epochs=3, distribution=t.Distribution(strategy="mirrored")),
        source="sklearn:digits",
        training=replace(
            training(),
            learning_rate=1e-4,
            global_batch=32,
            epochs=training().epochs[1:3],
            best_epoch=2,
            resumed_at=(),
            seconds=21.7,
        ),
        layers=tuple(
            t.TreatedLayer(name=name, kind=kind, treatment=treatment, reason=reason)
            for name, kind, treatment, reason in (
                ("conv", "Conv2D", "quantized", ""),
                ("dense", "Dense", "quantized", ""),
                ("act", "PReLU", "quantized with a config of edgeconv's", ""),
                ("norm", "GroupNormalization", "float", "tfmot has no way"),
                ("scale", "Rescaling", "float", "not asked for"),
                ("mask", "Lambda", "float", "tfmot has no way"),
            )
        ),
        rebuilt=True,
        rebuilt_max_abs_error=1.8e-7,
        seconds=41.2,
    )


def comparison() -> t.Comparison:
    model, other = measurement("qat"), measurement("int8")
    difference, low, high = paired_difference(model.accuracy.correct, other.accuracy.correct)
    pairs = list(zip(model.accuracy.correct, other.accuracy.correct, strict=True))
    return t.Comparison(
        model=model.name,
        other=other.name,
        difference=difference,
        interval=(low, high),
        fixed=pairs.count(("1", "0")),
        broken=pairs.count(("0", "1")),
    )


def verdict() -> t.Verdict:
    def found(recipe: str, limit: str, allowed: float, actual: float | None) -> t.Finding:
        ok = actual is not None and actual <= allowed
        return t.Finding(
            model=f"digits_cnn-{recipe}",
            limit=limit,
            allowed=allowed,
            actual=actual,
            outcome="passed" if ok else "failed",
        )

    return t.Verdict(
        findings=(
            found("float16", "max-size-bytes", 100_000, 80_140),
            found("float16", "max-accuracy-drop", 0.01, 0.0),
            found("int8", "max-size-bytes", 100_000, 46_872),
            found("int8", "max-latency-p50-us", 50.0, 29.8),
            found("int8", "max-accuracy-drop", 0.01, 2 / 360),
            found("int16x8", "max-size-bytes", 100_000, 48_016),
            found("int16x8", "max-accuracy-drop", 0.01, 11 / 360),
        )
    )


def report() -> t.Report:
    return t.Report(
        title="digits_cnn on LiteRT",
        environment=t.Environment(
            machine="build-7",
            cpu="AMD EPYC 7B13",
            cores=2,
            system="Linux 6.1 x86_64",
            python="3.11.9",
            tools=TOOLS,
        ),
        data=t.DataIdentity(source="sklearn:digits", samples=SAMPLES, sha256="d" * 64),
        baseline=baseline(),
        measurements=(
            measurement("float32"),
            measurement("float16"),
            without_accuracy("dynamic"),
            did_not_run("weight-only-int8"),
            measurement("int8"),
            measurement("int16x8"),
            measurement("qat"),
        ),
        comparisons=(comparison(),),
        training=training(),
        artifacts=tuple(artifact(recipe) for recipe in _FIGURES),
        conditions=t.Conditions(
            load_before=0.31,
            load_after=1.12,
            steal=0.004,
            busy=0.021,
            governor="performance",
            frequency_mhz=(2445.0, 3340.0),
        ),
        labels=LABELS,
        class_names=CLASSES,
        command=(
            "edgeconv",
            "bench",
            "out/digits_cnn",
            *("--data", "sklearn:digits"),
            "-o",
            "my report",
        ),
        verdict=verdict(),
        notes=("latency was measured on a shared machine",),
    )


def whole_report() -> t.Report:
    """With all that a bench can measure: a pace, cold starts, NPUs, a GPU and versions.

    One file has no estimate, for its compiler failed; the same files ran in a second runtime.
    """
    plain = report()
    further = {
        "float32": {"npu": (_FLOAT_ESTIMATE,)},
        "float16": {"acceleration": t.Acceleration(state="partial"), "kernels": (_ON_GPU,)},
        "dynamic": {"npu": (_FAILED_ESTIMATE,)},
        "int8": {"npu": (ESTIMATE,), "paced": _PACED, "cold": latency(840.0)},
    }
    rows = tuple(replace(row, **further.get(row.recipe or "", {})) for row in plain.measurements)
    again = (replace(row, name=f"{row.name} again") for row in rows[:5])
    return replace(
        plain,
        measurements=(*rows, *again),
        matrix=tuple(
            t.VersionResult(model="int8", runtime=f"litert=={version}", **fields)
            for version, fields in _VERSIONS.items()
        ),
    )


_VERSIONS: dict[str, dict[str, Any]] = {
    "2.0.2": {"state": "not installable"},
    "2.1.0": {"state": "wrong", "snr_db": -6.1, "flips": 301},
    "2.1.1": {"state": "crashes", "detail": "SIGSEGV\nat 0"},
    "2.3.0": {"state": "right", "is_reference": True, "flips": 0},
}
ESTIMATE = t.NpuEstimate(
    npu="ethos-u55-128",
    compiler="ethos-u-vela 5.2.0",
    system="Ethos_U55_High_End_Embedded",
    memory="Shared_Sram",
    clock_hz=5e8,
    operators=12,
    on_npu=10,
    macs=1000,
    macs_on_npu=990,
    sram_bytes=4096,
    dram_bytes=0,
    flash_bytes=71_000,
    latency_us=1234.5,
    left=(
        t.NpuLeft(operator="SVDF", count=2, reason="Unsupported opType"),
        t.NpuLeft(operator="<b>", count=1),
    ),
)
_FLOAT_ESTIMATE = replace(
    ESTIMATE,
    on_npu=0,
    macs_on_npu=0,
    latency_us=None,
    left=(t.NpuLeft(operator="CONV_2D", count=12, reason="unsupported DataType Float32"),),
)
_FAILED_ESTIMATE = t.NpuEstimate(
    npu="ethos-u55-128", compiler="ethos-u-vela 5.2.0", error="ended by SIGSEGV"
)
_ON_GPU = replace(agreement("float16"), output="y", reference="litert 2.3.0", flips=2, snr_db=61.5)
_PACED = t.PacedLatency(
    **msgspec.structs.asdict(latency(44.0)), period_us=20_000.0, distance_us=25_000.0
)


def conversion() -> t.Conversion:
    return t.Conversion(
        directory="out/digits_cnn",
        artifacts=tuple(artifact(recipe) for recipe in _FIGURES if recipe != "weight-only-int8"),
        failures=(
            t.Failure(
                recipe="weight-only-int8",
                error="VerificationFailed",
                message="output 'probabilities' has an SNR of -3.1 dB, below 0.0 dB\nfull log: x",
            ),
        ),
        reused=("float32", "float16"),
    )
