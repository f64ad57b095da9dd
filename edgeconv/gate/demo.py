"""The verb `demo`: train, convert, measure and check a small model, and report on it."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np

from edgeconv.conversion.convert import convert
from edgeconv.gate.budget import check
from edgeconv.measure.bench import bench
from edgeconv.plugins import baseline_model
from edgeconv.reporting.files import NAMES, write_report
from edgeconv.requests.bench import BenchRequest
from edgeconv.requests.config.file import limited, load_config
from edgeconv.requests.config.reach import FILE_NAME
from edgeconv.requests.convert import ConvertRequest
from edgeconv.requests.looking import DemoRequest
from edgeconv.requests.training import TrainRequest
from edgeconv.system.store import publish_bytes, writable_directory
from edgeconv.training.baseline import train
from edgeconv.types import RECIPE_NAMES, Conversion, DataSource, Measuring, Report, Training
from edgeconv.types.errors import UsageError

MODEL = "digits_cnn"
CONFIG = """\
# The budget of every artifact of the demo; see `edgeconv check --help`.
[budget]
max-accuracy-drop = 0.03

[budget.recipe.float16]
max-size-ratio = 0.5

[budget.recipe.int8]
max-size-ratio = 0.4
max-peak-memory-bytes = 16000000
"""


class Demonstration(msgspec.Struct, frozen=True, kw_only=True):
    """The results of the demo: the conversion, and the report with its verdict."""

    conversion: Conversion
    report: Report
    report_json: str
    report_html: str


def demonstrate(
    request: DemoRequest, *, on_progress: Callable[[str], None] = lambda _: None
) -> Demonstration:
    """Train, convert, measure and check a small CNN on scikit-learn's handwritten digits.

    It is trained under MirroredStrategy on two logical CPU devices, and converted by every recipe.
    Everything is written to one directory. Raises an `EdgeconvError` where a step fails.
    """
    directory, execution = Path(request.directory).absolute(), request.execution
    writable_directory(directory)
    _begin(directory)
    training = TrainRequest(
        training=Training(module=MODEL), directory=str(directory), allowance=execution.allowance
    )
    record = train(training, on_progress=on_progress)
    assert record is not None, "no member of a cluster"
    train_set, test_set = _store_data(directory)
    published = str(directory / "tflites")
    conversion = convert(
        ConvertRequest(
            model=record.saved_model,
            directory=published,
            to=RECIPE_NAMES,
            calibration={"": train_set},
            samples=200,
            execution=execution,
        ),
        on_progress=on_progress,
    )
    report = bench(
        BenchRequest(
            models=(published,),
            data=test_set,
            baseline=record.saved_model,
            measuring=Measuring(title="edgeconv demo: handwritten digits"),
            execution=execution,
        ),
        on_progress=on_progress,
    )
    budget = limited(load_config(directory / FILE_NAME, {}))
    report = msgspec.structs.replace(report, verdict=check(report, budget))
    as_json, as_html = write_report(report, directory)
    return Demonstration(
        conversion=conversion, report=report, report_json=str(as_json), report_html=str(as_html)
    )


def _begin(directory: Path) -> None:
    """Write the configuration. Raises `UsageError` for files there that are not of a demo."""
    config, content = directory / FILE_NAME, CONFIG.encode()
    if not (config.is_file() and config.read_bytes() == content):
        for name in (FILE_NAME, "train.npz", "test.npz", *NAMES.values()):
            if (directory / name).exists():
                raise UsageError(
                    f"the demo would replace {directory / name}", hint="choose another directory"
                )
    publish_bytes(content, config)


def _store_data(directory: Path) -> tuple[DataSource, DataSource]:
    """The training and the test set as .npz, for running the steps by hand."""
    import io

    data = baseline_model(MODEL).data()
    sources = []
    for name, inputs, labels in (
        ("train", data.x_train, data.y_train),
        ("test", data.x_test, data.y_test),
    ):
        buffer = io.BytesIO()
        np.savez_compressed(buffer, labels=labels, **inputs)
        target = directory / f"{name}.npz"
        publish_bytes(buffer.getvalue(), target)
        sources.append(DataSource(kind="npz", location=str(target)))
    return sources[0], sources[1]
