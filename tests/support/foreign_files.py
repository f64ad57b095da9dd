"""Files that are not models, and directories of files."""

from pathlib import Path

POINTER = (
    b"version https://git-lfs.github.com/spec/v1\n"
    b"oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
    b"size 132735\n"
)


def write(directory: Path, contents: dict[str, bytes]) -> Path:
    """The directory, with files of these relative names and contents in it."""
    for name, content in contents.items():
        file = directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return directory
