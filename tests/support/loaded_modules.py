"""What a fresh process loads."""

import sys

from commands import captured

from edgeconv.system.store.tools import QUANTIZERS

QUANTIZER_PACKAGES = {name.replace("-", "_") for name in QUANTIZERS}

HEAVY = QUANTIZER_PACKAGES | {
    "numpy",
    "tensorflow",
    "tf_keras",
    "keras",
    "ai_edge_litert",
    "sklearn",
    "h5py",
    "google.protobuf",
    "rich",
    "jinja2",
    "psutil",
    "pyarrow",
    "PIL",
    "scipy",
    "vl_convert",
}
# With what an unchanged run has no use for: none of it is slow alone.
IDLE = HEAVY | {
    *("importlib.metadata", "email", "logging", "concurrent.futures", "html", "statistics"),
    *("edgeconv.conversion.run", "edgeconv.model.tflite", "edgeconv.model.source.scanning"),
    *("edgeconv.runtimes.isolated", "edgeconv.system.processes.tasks"),
}


def loaded_by(code: str, *arguments: str, of: set[str] = HEAVY) -> set[str]:
    """Which of these modules a fresh process has loaded at the end of `code`."""
    program = (
        "import sys\n"
        "try:\n"
        f"    {code}\n"
        "except SystemExit as ended: assert not ended.code, ended.code\n"
        f"print(*({of!r} & {{*sys.modules}}), file=sys.stderr)\n"
    )
    command = [sys.executable, "-c", program, *arguments]
    done = captured(command)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.split())


RUN = "from edgeconv.cli import main; main()"
