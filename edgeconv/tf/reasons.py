"""What errors of TensorFlow and Keras say is wrong: they often begin with where it arose."""

import re

from edgeconv.types.words import first_line, shortened

# Lines about where something failed, or how often.
_WHERE = re.compile(
    r"Graph execution error:?|Detected at node.*|File \".*|<stack traces unavailable>|.* at trace:"
    r"|Exception encountered when .*|\d+ root error\(s\) found\.|\d+ (successful|derived) .*"
    r"|\[\[\{*node .*|Stack trace.*:"
)
# How TensorFlow begins the reason of one of several errors.
_NUMBERED = re.compile(r"\(\d+\) (?=[A-Z_]+: )")
_MOST_LINES = 20


def reason(error: Exception, most: int = 400) -> str:
    """The line of an error that says what is wrong, shortened; else the name of its type."""
    lines = _lines(error)
    telling = next((line for line in lines if not _WHERE.fullmatch(line)), "")
    return first_line(_NUMBERED.sub("", telling) or error, most)


def whole_reason(error: Exception) -> str:
    """The reason, and below it the other lines of the message, indented."""
    first = reason(error)
    others = [line for line in _lines(error) if _NUMBERED.sub("", line) != first]
    kept = dict.fromkeys(shortened(line, 400) for line in others[:_MOST_LINES])
    return "\n    ".join([first, *kept])


def _lines(error: Exception) -> list[str]:
    """The lines of a message that are not blank, without the code of TensorFlow's callers."""
    lines: list[str] = []
    is_code = False
    # Keras puts some sentences in bold.
    for line in re.sub(r"\x1b\[\d*m", "", str(error)).splitlines():
        if line.strip() and not is_code:
            lines.append(line.strip())
        # The line of code that a traceback quotes is deeper than the one that says where it is.
        is_code = line.lstrip().startswith('File "')
    return lines
