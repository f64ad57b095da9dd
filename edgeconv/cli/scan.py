"""`edgeconv scan`: what models would touch if they were loaded, without loading them."""

from __future__ import annotations

from msgspec.structs import replace

from edgeconv.cli.command import CommandCall, verb_command
from edgeconv.cli.printing import echo_error, echo_text
from edgeconv.errors import InputRefused


@verb_command("scan")
def command(call: CommandCall) -> int:
    """Show what the model at each PATH would touch outside itself.

    A path is a SavedModel directory (or the directory of its versions), a .keras, .h5 or .hdf5
    file, or a .tflite file. Nothing in it is loaded or run. Exit code 0 if none is refused, 1 if
    one is, 3 if a path is not a model. No configuration changes the findings. Commands that load a
    model refuse what is refused here; see docs/security.md.
    """
    from edgeconv.reporting.scans import render_scan_json, render_scan_sarif, render_scan_text

    renders = {"text": render_scan_text, "json": render_scan_json, "sarif": render_scan_sarif}
    scans, errors = [], list[InputRefused]()
    for path in (call.request.path, *call.shown.further):
        try:
            scans.append(call.verb(replace(call.request, path=path)))
        except InputRefused as error:
            errors.append(error)
    echo_text(renders["json" if call.shown.as_json else call.shown.format](scans))
    for refused in errors[:-1]:
        echo_error(refused)
    if errors:
        raise errors[-1]
    return 1 if any(scanned.is_refused for scanned in scans) else 0
