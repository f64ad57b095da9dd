"""The target `c`: the model as C for any program, with a header for TensorFlow Lite Micro."""

from collections.abc import Mapping
from pathlib import Path

from edgeconv.embedding.c_files import C_OPTIONS, c_files, is_of_self_test
from edgeconv.embedding.interface import NPU_OPTION, Embedding, TargetOption
from edgeconv.embedding.micro import MICRO_OPTION, micro_files, micro_notes

notes = micro_notes
OPTIONS = {
    **C_OPTIONS,
    **MICRO_OPTION,
    **NPU_OPTION,
    "self_test": TargetOption(
        help="together: the self-test and its golden vectors among the other files; apart: in the "
        "folder self_test, for another library, which firmware does not carry; no: without",
        default="together",
        choices=("together", "apart", "no"),
    ),
}


def files(embedding: Embedding) -> Mapping[str, bytes | Path]:
    """See `edgeconv.embedding.interface`."""
    written = {**c_files(embedding), **micro_files(embedding)}
    if embedding.options["self_test"] == "together":
        return written
    kept: dict[str, bytes | Path] = {}
    for name, content in written.items():
        if not is_of_self_test(name, embedding.symbol):
            kept[name] = content
        elif embedding.options["self_test"] == "apart":
            kept[f"self_test/{name}"] = content
    return kept
