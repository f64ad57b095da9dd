"""The user's configuration: config.toml in the folder of the user's settings.

It allows what a project may name outside itself, as `--allow KIND=VALUE` does for one run. No
project can change it.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, get_args

import msgspec

from edgeconv.system.store.hashes import is_sha256
from edgeconv.system.store.toml_file import Key, TomlFile, read_toml, shown
from edgeconv.types.errors import UsageError, unknown_name
from edgeconv.types.execution import SandboxMode

Kind = Literal["directory", "code", "program", "runtime", "tracker", "address"]
KINDS: tuple[Kind, ...] = get_args(Kind)
TABLE = "allow"
# The key of each kind in [allow].
KEYS: dict[Kind, str] = {
    "directory": "directories",
    "code": "code",
    "program": "programs",
    "runtime": "runtimes",
    "tracker": "trackers",
    "address": "addresses",
}
PROJECTS, TRUSTED, SANDBOX = "projects", "trusted", "sandbox"
_PATHS = frozenset({PROJECTS, "directories", "programs"})
_HASHES = frozenset({TRUSTED, "code"})


class Allowed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What projects may name: the table [allow], with absolute paths.

    `projects`: folders whose configurations may name anything. `directories`: may be read and
    written. `code`: hashes of modules, programs and files that may be run. `programs`: their paths.
    `runtimes`, `trackers` and `addresses`: as a project writes them.
    """

    projects: tuple[str, ...] = ()
    directories: tuple[str, ...] = ()
    code: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    runtimes: tuple[str, ...] = ()
    trackers: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()


class UserConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of config.toml.

    `trusted`: content hashes of models that the scan would refuse. `sandbox`: the default of
    --sandbox.
    """

    trusted: tuple[str, ...] = ()
    sandbox: SandboxMode = "auto"
    allow: Allowed = Allowed()


def user_configuration() -> Path:
    """The path of the user's configuration."""
    from platformdirs import user_config_path

    return user_config_path("edgeconv") / "config.toml"


def read_user_config() -> UserConfig:
    """The user's configuration, empty if there is none. Raises `UsageError`, with the line."""
    path = user_configuration()
    if not (path.exists() or path.is_symlink()):
        return UserConfig()
    # Only now: most users have none.
    file = read_toml(path)
    _refuse_unknown(file, (), (TRUSTED, SANDBOX, TABLE))
    _refuse_unknown(file, (TABLE,), (PROJECTS, *KEYS.values()))
    lists = {key: _texts(file, (TABLE, key)) for key in file.table(TABLE)}
    trusted = _texts(file, (TRUSTED,)) if file.has(TRUSTED) else ()
    return UserConfig(trusted=trusted, sandbox=_mode(file), allow=Allowed(**lists))


def allowed_by(texts: Iterable[str]) -> Allowed:
    """What `--allow KIND=VALUE` allows; paths start here. Raises `UsageError`."""
    lists: dict[str, tuple[str, ...]] = {}
    for text in texts:
        kind, equals, value = text.partition("=")
        if not equals or not value:
            raise UsageError(
                f"--allow {text}: not of the form KIND=VALUE",
                hint="for example directory=../shared",
            )
        if kind not in KINDS:
            raise unknown_name("kind of --allow", kind, KINDS)
        key = KEYS[kind]
        if key in _HASHES and not is_sha256(value):
            raise UsageError(f"--allow {text}: {value} is not a sha256", hint="64 digits, 0-9 a-f")
        lists[key] = (*lists.get(key, ()), os.path.realpath(value) if key in _PATHS else value)
    return Allowed(**lists)


def both(first: Allowed, second: Allowed) -> Allowed:
    """What either of them allows."""
    names = Allowed.__struct_fields__
    return Allowed(**{name: (*getattr(first, name), *getattr(second, name)) for name in names})


def _refuse_unknown(file: TomlFile, key: Key, known: tuple[str, ...]) -> None:
    for name in file.table(*key):
        if name not in known:
            file.unknown("key", (*key, name), known)


def _mode(file: TomlFile) -> SandboxMode:
    mode: SandboxMode = file.table().get(SANDBOX, "auto")
    if mode not in get_args(SandboxMode):
        hint = "remove the line, or choose one"
        raise file.error((SANDBOX,), "sandbox is not auto, required or off", hint)
    return mode


def _texts(file: TomlFile, key: Key) -> tuple[str, ...]:
    """The texts of an array, whose hashes and paths are checked."""
    name, value = key[-1], file.table(*key[:-1])[key[-1]]
    if not isinstance(value, list) or not all(isinstance(each, str) and each for each in value):
        raise file.error(key, f"{name} is not a list of texts", f'as in {name} = ["..."]')
    if name in _HASHES and not all(map(is_sha256, value)):
        raise file.error(
            key,
            f"{name} is not a list of sha256 hashes",
            f'{name} = ["..."], as the refusal, or `edgeconv scan`, shows them',
        )
    return tuple(_absolute(file, key, each) for each in value) if name in _PATHS else tuple(value)


def _absolute(file: TomlFile, key: Key, text: str) -> str:
    path = os.path.expanduser(text)  # noqa: PTH111
    if not os.path.isabs(path) or "\0" in path:  # noqa: PTH117
        hint = "write an absolute path; ~ is your home"
        raise file.error(key, f"{shown(text)} of {key[-1]} is not an absolute path", hint)
    return os.path.realpath(path)
