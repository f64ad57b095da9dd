"""The commands that call their verb and print its result."""

from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from edgeconv.cli.command import CommandCall, result_command, verb_command
from edgeconv.cli.printing import (
    ANNOTATIONS,
    COLORS,
    echo,
    echo_error,
    echo_failures,
    echo_json,
    echo_page,
    echo_text,
    progress,
    terminal,
)
from edgeconv.types.errors import InputRefused, exit_code_of


@result_command(
    "train",
    keep=True,
    examples=(
        "edgeconv train mnist_cnn --epochs 5",
        "edgeconv train my_model.py --data images/ -o models",
        "edgeconv train my_model.py --strategy multiworker --workers 2",
    ),
    brief="data strategy workers devices epochs global-batch learning-rate seed "
    "validation-fraction out checkpoint-dir",
)
def train(*_: Any) -> None:
    """Train the baseline MODULE, evaluate it and export it as the next version of a SavedModel.

    MODULE is a model of edgeconv (digits_cnn, mnist_cnn, spoken_digits, cifar_mobilenet, bert_mlm),
    a file ending in .py or an importable module; see docs/training.md. The Keras file
    MODULE/N.keras and the record MODULE/N.training.json are written next to the SavedModel
    MODULE/N. A killed training resumes from its last checkpoint when the command is run again.
    """


@result_command(
    "convert",
    shows=("verbose",),
    page={"tells_failures": False},
    examples=(
        "edgeconv convert model.keras --to float16",
        "edgeconv convert saved_model/ --to int8 --calibration train.npz -o out",
        "edgeconv convert model.keras --to qat --training train.npz --qat-epochs 3",
    ),
    brief="out to calibration preprocess training io batch target-runtime calibration-range "
    "methods layer qat-epochs qat-learning-rate threads",
)
def convert(call: CommandCall, conversion: Any) -> int:
    """Convert MODEL to .tflite files, each verified before it is published.

    MODEL is a SavedModel directory, a .keras or .h5 file, or a float .tflite; for qat, a Keras
    file or a SavedModel of tf_keras. Each file gets a manifest. Files that are up to date are kept.
    """
    if not call.shown.as_json:
        echo_failures(conversion.failures)
    return exit_code_of(failure.error for failure in conversion.failures)


@result_command(
    "tune",
    examples=(
        "edgeconv tune model.keras --data test.npz --max-drop 0.005",
        "edgeconv tune saved_model/ --data test.npz --max-drop 0.01 --objective latency",
        "edgeconv tune model.keras --data test.npz --max-drop 0.01 --to int8,int16x8",
    ),
    brief="data max-drop out calibration preprocess objective to metric runtime batch samples "
    "trials time-limit-s threads",
)
def tune(_: CommandCall, tuned: Any) -> int:
    """Find the smallest or fastest .tflite of MODEL that loses no more than --max-drop.

    MODEL is what `convert` takes. Precisions and methods are tried for the model and layer by
    layer. The artifact gets a manifest and NAME.recipe.toml, from which `convert --config` makes
    the same file. A killed search resumes when it is run again. Exit code 1 if nothing is within
    the budget on samples that the search never saw.
    """
    return 0 if tuned.ok else 1


@result_command(
    "bench",
    examples=(
        "edgeconv bench model.tflites/",
        "edgeconv bench model.tflites/ --data test.npz -o report",
        "edgeconv bench int8.tflite --runtime tflite-runtime==2.14.0 --profile",
    ),
    brief="data preprocess samples baseline out runtime interpreter-threads rounds metric profile "
    "layers threads",
)
def bench(call: CommandCall, report: Any) -> int:
    """Measure MODELS, and compare them with the trained baseline.

    MODELS are .tflite files, or directories that `edgeconv convert` published in. Each model runs
    in fresh processes, in rounds in which the models take turns. The report has size, latency with
    its raw samples, peak memory and accuracy. Exit code 4 if a model did not run.
    """
    if not call.shown.as_json and call.request.directory is not None:
        for name in ("report.json", "report.html"):
            echo(f"report: {Path(call.request.directory).absolute() / name}")
    return 4 if any(row.error for row in report.measurements) else 0


@result_command("compare", shows=("everything",))
def compare(*_: Any) -> None:
    """Show what changed from BEFORE to AFTER.

    Both are report.json files of `edgeconv bench`, or both .tflite files. What must not be
    compared, such as times of two machines, is left out, and the reason given. The exit code is 0
    even if something changed.
    """


@result_command("doctor")
def doctor(_: CommandCall, diagnosis: Any) -> int:
    """Find the preprocessing that MODEL was trained with, using labeled samples.

    MODEL is a SavedModel, a .keras, .h5 or .hdf5 file, or a .tflite; DATA is a SOURCE with labels.
    The plausible scales, means and orders of colors are tried on a few dozen samples. The output
    has the value of --preprocess with which the model is right. Exit code 1 if there is none.
    """
    return 0 if diagnosis.ok else 1


@result_command("debug", shows=("top",))
def debug(*_: Any) -> None:
    """Show which layers of MODEL lose most when it is quantized, and which rules help.

    MODEL is what `convert` takes: a SavedModel, a .keras, .h5 or .hdf5 file, or a float .tflite.
    Each layer is quantized alone and ranked by its cost at the outputs. The error of its output in
    the quantized file is shown too. --layer rules for the worst layers are tried. A file that
    `convert` would refuse for its outputs is debugged all the same.
    """


@result_command("inspect")
def inspect(*_: Any) -> None:
    """Show what is in MODEL: its signatures, operators or layers, and weights.

    MODEL is a SavedModel directory (or the directory of its versions), a .keras, .h5 or .hdf5 file,
    or a .tflite file. Nothing in it is run.
    """


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
    echo_failures(job.conversion.failures)
    if job.conversion.failures:
        return 4
    return 0 if report.verdict is not None and report.verdict.ok else 1


@verb_command("visualize")
def visualize(call: CommandCall) -> None:
    """Open MODEL, a .tflite file, with the error of each layer on its graph.

    Model Explorer colors the layers; Netron shows only the graph. The viewer runs until it is
    interrupted.
    """
    call.do(call.request, echo)


@verb_command(
    "sweep",
    examples=(
        "edgeconv sweep sweep.toml",
        "edgeconv sweep sweep.toml --jobs 4 --retry-failed",
        "edgeconv sweep sweep.toml --status",
    ),
    brief="out jobs status retry-failed",
)
def sweep(call: CommandCall) -> int:
    """Convert and measure all combinations of models, recipes, runtimes and data sets in FILE.

    Each combination is a cell, which runs once: a later run does only what is missing, for
    example after a change of a model, a data set or an option. A cell that fails is in the report
    with its reason, and does not end the sweep. Exit code 4 if a cell failed, 3 if all that failed
    are models or samples that were refused. `edgeconv check` on sweep.json holds all cells to the
    budget of FILE.
    """
    from edgeconv.reporting.pages import text_of
    from edgeconv.reporting.sweeps import CSV_NAME, HTML_NAME, JSON_NAME

    of_config = call.of_config
    request = replace(call.request, allow=of_config["allow"], any_code=of_config["any_code"])
    with progress(quiet=call.shown.quiet) as on_progress:
        sweep = call.do(request, on_progress)
    if call.shown.as_json:
        echo_json(sweep)
    else:
        echo_page(text_of(sweep, **terminal()))
        for name in () if request.status else (HTML_NAME, JSON_NAME, CSV_NAME):
            echo(f"report: {Path(sweep.directory) / name}")
    return exit_code_of(cell.error for cell in sweep.cells if cell.state == "failed")


@verb_command("report")
def report(call: CommandCall) -> None:
    """Render FILES: one or several report.json files of `edgeconv bench`.

    The models of several reports go into one table if they were measured on the same machine, in
    the same runtime, with the same number of threads and on the same samples. With --config they
    are checked against its [budget]; only `edgeconv check` has an exit code for that.
    """
    from edgeconv.reporting.files import NAMES, render
    from edgeconv.reporting.verdicts.machine import report_schema

    request = call.request
    if call.shown.schema:
        echo_text(report_schema().decode())
        return
    if not request.files:
        raise click.UsageError(
            "give one or several report.json of `edgeconv bench`", click.get_current_context()
        )
    default = "html" if request.directory else "text"
    formats = tuple(dict.fromkeys(request.formats)) or (default,)
    if request.directory is None and len(formats) > 1:
        raise click.UsageError("several formats need a directory: give one with -o")
    if call.is_named and call.config is not None:
        from edgeconv.requests.config.file import limited

        request = replace(request, budget=limited(call.config))
    reports = call.do(request)
    if request.directory is None:
        text = render(reports, formats[0], **terminal())
        echo_text(text, own=COLORS if formats[0] == "text" else None)
    else:
        for name in formats:
            echo(f"report: {Path(request.directory).absolute() / NAMES[name]}")


@verb_command(
    "check",
    examples=(
        "edgeconv check",
        "edgeconv check --model mnist --output junit=build/junit.xml",
        "edgeconv check --update",
    ),
    brief="model update accept-drop lock runtimes confidence output track threads",
)
def check(call: CommandCall) -> int:
    """Convert and measure every model of edgeconv.toml, and check its budget and the lock.

    With REPORT, the report.json of `edgeconv bench` or the sweep.json of `edgeconv sweep`, nothing
    runs: it is checked against the budget (a sweep by default against its own). Exit code 0 if
    every limit holds; 1 if one is broken, was not measured, or cannot be decided. Only --update
    accepts anything, and a step whose inputs did not change is not repeated.
    """
    from edgeconv.gate.check import is_github, parse_destinations, publish, run_check, track
    from edgeconv.reporting.verdicts import render

    request = replace(call.request, **call.of_config)
    outputs, trackers = parse_destinations(request)
    with progress(quiet=call.shown.quiet) as on_progress:
        run = run_check(request, on_progress)
    for notice in run.notices:
        echo(notice, err=True)
    if call.shown.as_json:
        echo_text(render(run.checked, "json"))
    else:
        if run.has_verdict:
            shown = render(run.checked, "text", **terminal(), verbose=call.shown.verbose)
            echo_text(shown, own=COLORS)
        if is_github():
            echo_text(render(run.checked, "github-annotations"), own=ANNOTATIONS)
    publish(run.checked, outputs)
    # Last: a server that does not answer must not keep the verdict back.
    if run.has_verdict:
        track(run, trackers)
    if run.errors:
        raise run.errors[0]
    return 0 if run.checked.ok else 1


@verb_command("scan")
def scan(call: CommandCall) -> int:
    """Show what the model at each PATH would touch outside itself.

    A path is a SavedModel directory (or the directory of its versions), a .keras, .h5 or .hdf5
    file, or a .tflite file. Nothing in it is loaded or run. Exit code 0 if none is refused, 1 if
    one is, 3 if a path is not a model. No configuration changes the findings. Commands that load a
    model refuse what is refused here; see docs/security.md.
    """
    from edgeconv.reporting.inspected import render_scan_json, render_scan_sarif, render_scan_text

    renders = {"text": render_scan_text, "json": render_scan_json, "sarif": render_scan_sarif}
    scans, errors = [], list[InputRefused]()
    for path in (call.request.path, *call.shown.further):
        try:
            scans.append(call.do(replace(call.request, path=path)))
        except InputRefused as error:
            errors.append(error)
    echo_text(renders["json" if call.shown.as_json else call.shown.format](scans))
    for refused in errors[:-1]:
        echo_error(refused)
    if errors:
        raise errors[-1]
    return 1 if any(scanned.is_refused for scanned in scans) else 0


@verb_command("verify")
def verify(call: CommandCall) -> int:
    """Verify the published files at PATHS against everything that belongs to them.

    A path is a folder that convert, bench, check or embed wrote to, or a file in one. Each .tflite
    is compared with its manifest, its trained model, the verdict of its last check, reports and the
    lock; the files of an embedding with their record, and the model in them with the published one.
    What could not be checked is printed, and does not pass. Nothing is loaded, run or fetched.

    Exit code 0 if all that was checked holds, 1 if anything does not or was rejected by its check,
    3 if there is nothing to verify. See docs/evidence.md.
    """
    from edgeconv.reporting.inspected import (
        evidence_schema,
        render_evidence_json,
        render_evidence_text,
    )

    if call.shown.schema:
        echo_text(evidence_schema().decode())
        return 0
    evidence = call.do(call.request)
    echo_text((render_evidence_json if call.shown.as_json else render_evidence_text)(evidence))
    return 0 if evidence.ok else 1
