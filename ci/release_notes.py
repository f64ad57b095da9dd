"""The changelog's section of one release, for the page of that release.

    python ci/release_notes.py v0.1.0

Exit code 1 where the tag is not the version of the package, or the changelog does not have it.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADING = re.compile(r"^## \[(?P<version>[^\]]+)\](?: - (?P<date>\d{4}-\d{2}-\d{2}))?$")


def sections(changelog: str) -> dict[str, tuple[str | None, str]]:
    """Date and text of each version of the changelog, in its order."""
    texts: dict[str, tuple[str | None, str]] = {}
    version: str | None = None
    for line in changelog.splitlines():
        heading = HEADING.match(line)
        if heading:
            version = heading["version"]
            texts[version] = (heading["date"], "")
        elif version is not None:
            date, text = texts[version]
            texts[version] = (date, f"{text}{line}\n")
    return texts


def main(tag: str) -> int:
    """Print the section of a tag; the exit code."""
    from edgeconv import __version__

    version = tag.removeprefix("v")
    if version != __version__:
        print(f"the tag is {tag}, and the version {__version__}", file=sys.stderr)
        return 1
    date, text = sections((ROOT / "CHANGELOG.md").read_text(encoding="utf-8")).get(
        version, (None, "")
    )
    if date is None or not text.strip():
        print(f"CHANGELOG.md has no '## [{version}] - DATE' with text", file=sys.stderr)
        return 1
    print(text.strip())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
