"""The commands that call their verb and print its result, and do nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edgeconv.cli.command import CommandCall, verb_command
from edgeconv.cli.printing import echo, echo_failed, echo_json, echo_page, terminal
from edgeconv.errors import SuspectCalibration


def _printed(call: CommandCall, *, keep: bool = False, **options: Any) -> Any:
    """The verb's result, printed as JSON or as its page."""
    from edgeconv.reporting.pages import text_of

    result = call.run(keep=keep)
    if call.shown.as_json:
        echo_json(result)
    elif result is not None:
        echo_page(text_of(result, **options, **terminal()))
    return result


@verb_command(
    "train",
    examples=(
        "edgeconv train mnist_cnn --epochs 5",
        "edgeconv train my_model.py --data images/ -o models",
        "edgeconv train my_model.py --strategy multiworker --workers 2",
    ),
)
def train(call: CommandCall) -> None:
    """Train the baseline MODULE, evaluate it and export it as the next version of a SavedModel.

    MODULE is a model of edgeconv (digits_cnn, mnist_cnn, spoken_digits, cifar_mobilenet, bert_mlm),
    a file ending in .py or an importable module; see docs/training.md. The Keras file
    MODULE/N.keras and the record MODULE/N.training.json are written next to the SavedModel
    MODULE/N. A killed training resumes from its last checkpoint when the command is run again.
    """
    _printed(call, keep=True)


@verb_command(
    "convert",
    examples=(
        "edgeconv convert model.keras --to float16",
        "edgeconv convert saved_model/ --to int8 --calibration train.npz -o out",
        "edgeconv convert model.keras --to qat --training train.npz --qat-epochs 3",
    ),
)
def convert(call: CommandCall) -> int:
    """Convert MODEL to .tflite files, each verified before it is published.

    MODEL is a SavedModel directory, a .keras or .h5 file, or a float .tflite; for qat, a Keras
    file or a SavedModel of tf_keras. Each file gets a manifest. Files that are up to date are kept.
    """
    conversion = _printed(call)
    if not call.shown.as_json:
        for failure in conversion.failures:
            echo_failed(failure)
    if not conversion.failures:
        return 0
    # Where only the samples are at fault, no tool failed.
    errors = {failure.error for failure in conversion.failures}
    return SuspectCalibration.exit_code if errors == {SuspectCalibration.__name__} else 4


@verb_command(
    "tune",
    examples=(
        "edgeconv tune model.keras --data test.npz --max-drop 0.005",
        "edgeconv tune saved_model/ --data test.npz --max-drop 0.01 --objective latency",
        "edgeconv tune model.keras --data test.npz --max-drop 0.01 --to int8,int16x8",
    ),
)
def tune(call: CommandCall) -> int:
    """Find the smallest or fastest .tflite of MODEL that loses no more than --max-drop.

    MODEL is what `convert` takes. Precisions and methods are tried for the model and layer by
    layer. The artifact gets a manifest and NAME.recipe.toml, from which `convert --config` makes
    the same file. A killed search resumes when it is run again. Exit code 1 if nothing is within
    the budget on samples that the search never saw.
    """
    return 0 if _printed(call).ok else 1


@verb_command(
    "bench",
    examples=(
        "edgeconv bench model.tflites/",
        "edgeconv bench model.tflites/ --data test.npz -o report",
        "edgeconv bench int8.tflite --runtime tflite-runtime==2.14.0 --profile",
    ),
)
def bench(call: CommandCall) -> int:
    """Measure MODELS, and compare them with the trained baseline.

    MODELS are .tflite files, or directories that `edgeconv convert` published in. Each model runs
    in fresh processes, in rounds in which the models take turns. The report has size, latency with
    its raw samples, peak memory and accuracy. Exit code 4 if a model did not run.
    """
    report = _printed(call)
    if not call.shown.as_json and call.request.directory is not None:
        for name in ("report.json", "report.html"):
            echo(f"report: {Path(call.request.directory).absolute() / name}")
    return 4 if any(row.error for row in report.measurements) else 0


@verb_command("compare")
def compare(call: CommandCall) -> None:
    """Show what changed from BEFORE to AFTER.

    Both are report.json files of `edgeconv bench`, or both .tflite files. What must not be
    compared, such as times of two machines, is left out, and the reason given. The exit code is 0
    even if something changed.
    """
    _printed(call, everything=call.shown.everything)


@verb_command("doctor")
def doctor(call: CommandCall) -> int:
    """Find the preprocessing that MODEL was trained with, using labeled samples.

    MODEL is a SavedModel, a .keras, .h5 or .hdf5 file, or a .tflite; DATA is a SOURCE with labels.
    The plausible scales, means and orders of colors are tried on a few dozen samples. The output
    has the value of --preprocess with which the model is right. Exit code 1 if there is none.
    """
    return 0 if _printed(call).ok else 1


@verb_command("debug")
def debug(call: CommandCall) -> None:
    """Show which layers of MODEL lose most when it is quantized, and which rules help.

    MODEL is what `convert` takes: a SavedModel, a .keras, .h5 or .hdf5 file, or a float .tflite.
    Each layer is quantized alone and ranked by its cost at the outputs. The error of its output in
    the quantized file is shown too. --layer rules for the worst layers are tried. A file that
    `convert` would refuse for its outputs is debugged all the same.
    """
    _printed(call, top=call.shown.top)


@verb_command("inspect")
def inspect(call: CommandCall) -> None:
    """Show what is in MODEL: its signatures, operators or layers, and weights.

    MODEL is a SavedModel directory (or the directory of its versions), a .keras, .h5 or .hdf5 file,
    or a .tflite file. Nothing in it is run.
    """
    _printed(call)


@verb_command("demo")
def demo(call: CommandCall) -> int:
    """Run the whole job on a small model, without any download.

    Trains a CNN on scikit-learn's handwritten digits under MirroredStrategy with two logical CPU
    devices, converts it by every recipe, compares each artifact with the trained baseline, and
    checks them against a small budget. Exit code 1 if a limit is broken.
    """
    from edgeconv.reporting.pages import text_of

    job = call.run()
    report = job.report
    if call.shown.as_json:
        echo_json(report)
    else:
        echo_page(text_of(report, **terminal()))
        if report.verdict is not None:
            echo_page(text_of(report.verdict, below_table=True, **terminal()))
        echo(f"report: {job.report_html}")
        echo(f"        {job.report_json}")
    for failure in job.conversion.failures:
        echo_failed(failure)
    if job.conversion.failures:
        return 4
    return 0 if report.verdict is not None and report.verdict.ok else 1


@verb_command("visualize")
def visualize(call: CommandCall) -> None:
    """Open MODEL, a .tflite file, with the error of each layer on its graph.

    Model Explorer colors the layers; Netron shows only the graph. The viewer runs until it is
    interrupted.
    """
    call.verb(call.request, on_progress=echo)


@verb_command(
    "worker",
    examples=(
        "edgeconv worker 10.0.0.1:6379 --devices ssh:pi@board,adb",
        "edgeconv sweep sweep.toml --on ray://10.0.0.1:10001",
    ),
)
def worker(call: CommandCall) -> None:
    """Join the cluster whose head is at HEAD:PORT, with this machine's cores and DEVICES.

    Each device is tried first, and has one job at a time. The worker runs until it is interrupted,
    or the cluster ends. Set RAY_AUTH_MODE=token here too; see docs/security.md.
    """
    call.verb(call.request, on_progress=echo)
