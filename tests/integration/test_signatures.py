"""Several signatures of one model in one file."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter
from edge_models import Made, schema, to_float, to_type

from edgeconv import bench, convert
from edgeconv.cli import run
from edgeconv.types import Measuring, Timing
from edgeconv.types.errors import InputRefused, UsageError

KEYS = ("encode", "decode")
RECIPES = ("float32", "dynamic", "int8")


@pytest.fixture(scope="module")
def sources(brought) -> dict[str, str]:
    return {key: str(brought / f"coder.{key}.npz") for key in KEYS}


@pytest.fixture(scope="module")
def both(brought, folder, sources) -> Made:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGECONV_CACHE_DIR", str(folder / "cache"))
        return Made(
            convert(
                brought / "coder",
                out=folder / "both",
                to=RECIPES,
                calibration=sources,
                signature=["encode", "decode"],
            )
        )


def answers(file: Path, key: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What LiteRT alone answers, sample by sample."""
    runner = Interpreter(model_path=str(file)).get_signature_runner(key)
    inputs, outputs = runner.get_input_details(), runner.get_output_details()
    made: dict[str, list[np.ndarray]] = {name: [] for name in outputs}
    for index in range(len(next(iter(arrays.values())))):
        feed = {n: to_type(a[index : index + 1], inputs[n]) for n, a in arrays.items()}
        for name, value in runner(**feed).items():
            made[name].append(to_float(value, outputs[name]))
    return {name: np.concatenate(parts) for name, parts in made.items()}


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(
    ("recipe", "tolerance"), [("float32", 1e-5), ("dynamic", 0.03), ("int8", 0.16)]
)
def test_each_signature_answers_as_in_tensorflow(key, recipe, tolerance, both, brought):
    """The decoder's samples are a hundred times larger: each has ranges of its own."""
    samples = dict(np.load(brought / f"coder.{key}.npz"))
    trained = np.load(brought / f"coder.{key}.answers.npz")
    made = answers(both.file(recipe), key, samples)
    assert set(made) == set(trained.files)
    for name, values in made.items():
        error = np.abs(values - trained[name]).max() / np.abs(trained[name]).max()
        assert error < tolerance, name


def test_the_manifest_has_both_signatures_and_the_samples_of_each(both):
    artifact = both["int8"]
    assert [signature.key for signature in artifact.signatures] == list(KEYS)
    assert [spec.name for spec in artifact.signatures[1].inputs] == ["code", "gain"]
    assert [record.signature for record in artifact.calibration] == list(KEYS)
    assert [Path(r.source).name for r in artifact.calibration] == [
        "coder.encode.npz",
        "coder.decode.npz",
    ]
    outputs = {error.output for error in artifact.verification.outputs}
    assert outputs == {"encode/code", "decode/x", "decode/energy"}


def constant_bytes(file: Path) -> list[int]:
    buffers = schema(file).buffers
    sizes = [int(b.size or 0) if b.data is None else len(b.data) for b in buffers]
    return sorted(sizes, reverse=True)


@pytest.mark.parametrize(("recipe", "bytes_each"), [("float32", 4), ("dynamic", 1), ("int8", 1)])
def test_a_weight_of_both_signatures_is_in_the_file_once(recipe, bytes_each, both):
    shared, other = 128 * 128 * bytes_each, 128 * 16 * bytes_each
    sizes = constant_bytes(both.file(recipe))
    assert sizes[:3] == [shared, other, other]
    assert both[recipe].size_bytes < shared + 2 * other + 9216


def test_one_signature_has_only_its_own_weights(both, brought, tmp_path):
    one = Made(convert(brought / "coder", out=tmp_path / "one", to=["float32"], signature="encode"))
    assert [signature.key for signature in one["float32"].signatures] == ["encode"]
    assert constant_bytes(one.file("float32"))[:2] == [4 * 128 * 128, 4 * 128 * 16]
    assert constant_bytes(one.file("float32"))[2] < 4096


@pytest.mark.parametrize(
    ("calibration", "signature", "kind", "match", "hint"),
    [
        ("encode", ["encode", "decoed"], UsageError, "signature 'decoed'", "mean 'decode'?"),
        (("encode",), "all", UsageError, "samples for signature 'decode'", "decode=SOURCE"),
        ("encode", "all", InputRefused, r"coder\.encode\.npz: .*input 'code' has no array", ""),
        (("encode", "decode"), "encode", UsageError, "in --calibration 'decode'", ""),
    ],
    ids=["unknown", "without samples", "samples of one", "samples of another"],
)
def test_signatures_and_samples_that_do_not_belong_together_are_refused(
    calibration, signature, kind, match, hint, brought, tmp_path, sources
):
    own = isinstance(calibration, tuple)
    given = {name: sources[name] for name in calibration} if own else sources[calibration]
    with pytest.raises(kind, match=match) as caught:
        convert(
            brought / "coder",
            out=tmp_path / "out",
            to=["int8"],
            calibration=given,
            signature=signature,
        )
    assert hint in caught.value.hint
    assert not (tmp_path / "out").exists()


def test_all_and_key_source_from_the_command_line(
    brought, folder, sources, both, monkeypatch, capsys
):
    """In another order, and with made-up samples where none are needed."""
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(folder / "cache"))
    monkeypatch.chdir(folder)
    monkeypatch.setattr("edgeconv.system.processes.signals.end_on_signals", lambda: None)
    options = [f"--calibration={key}={source}" for key, source in reversed(sources.items())]
    command = ["convert", str(brought / "coder"), "-o", "all", "--to", "int8", *options]
    assert run([*command, "--signature", "all", "-q"]) == 0, capsys.readouterr().err
    capsys.readouterr()
    for key in KEYS:
        samples = dict(np.load(brought / f"coder.{key}.npz"))
        first = answers(folder / "all" / "coder.int8.tflite", key, samples)
        second = answers(both.file("int8"), key, samples)
        for name, values in first.items():
            np.testing.assert_array_equal(values, second[name])


def test_all_of_the_twins_that_keras_exports_is_one(brought, tmp_path):
    made = Made(convert(brought / "custom", out=tmp_path / "out", to=["float32"], signature="all"))
    assert [one.key for one in made["float32"].signatures] == ["serving_default"]


@pytest.mark.parametrize("key", KEYS)
def test_bench_measures_the_signature_it_is_told(key, both, brought):
    report = bench(
        [both.directory],
        data=str(brought / f"coder.{key}.npz"),
        signature=key,
        measuring=Measuring(rounds=1, timing=Timing(warmup=1, repeats=3)),
    )
    assert [row.error for row in report.measurements] == [""] * len(RECIPES)
    assert report.baseline.error == ""
    assert all(row.latency is not None for row in report.measurements)


def test_bench_of_several_signatures_asks_which(both):
    with pytest.raises(UsageError, match="2 signatures"):
        bench([both.directory], measuring=Measuring(rounds=1))


def test_the_float_file_of_two_signatures_is_a_source_too(both, sources, tmp_path, brought):
    """As one who only has the .tflite converts it."""
    made = Made(
        convert(
            both.file("float32"),
            out=tmp_path / "again",
            to=["int8"],
            calibration=sources,
            signature="all",
        )
    )
    for key in KEYS:
        samples: dict[str, Any] = dict(np.load(brought / f"coder.{key}.npz"))
        first = answers(made.file("int8"), key, samples)
        second = answers(both.file("int8"), key, samples)
        for name, values in first.items():
            np.testing.assert_allclose(values, second[name], rtol=1e-5, atol=1e-5)
