"""What contributors do, a word each: `.venv-dev/bin/nox -s fast`. `nox -l` lists them.

They run in the environment that nox is installed in, the README's .venv-dev. What follows `--` goes
to the program: `nox -s fast -- -k calibration`.
"""

import shutil
import sys

import nox

nox.needs_version = ">=2024.4"
nox.options.default_venv_backend = "none"
nox.options.sessions = ["lint", "types", "fast"]

IN_PARALLEL = ("-n", "2", "--dist", "loadfile")
BENCHMARKS = ("scan", "convert", "gate", "build")
LOCK = ("--universal", "--python-version", "3.10", "--generate-hashes", "--no-annotate", "--quiet")


@nox.session
def fast(session: nox.Session) -> None:
    """What needs no TensorFlow, browser or compiler: two minutes."""
    _python(session, "pytest", "-m", "fast", *IN_PARALLEL, *session.posargs)


@nox.session
def tests(session: nox.Session) -> None:
    """All that CI runs."""
    _python(session, "pytest", *IN_PARALLEL, *session.posargs)


@nox.session
def journeys(session: nox.Session) -> None:
    """What users do, with the installed wheel: eight minutes."""
    _python(session, "pytest", "-m", "journey", *IN_PARALLEL, *session.posargs)


@nox.session
def slow(session: nox.Session) -> None:
    """What takes minutes each; a landing runs a part of it, and the nightly workflow all."""
    _python(session, "pytest", "-m", "slow", *IN_PARALLEL, *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Ruff, which also formats, and the files of GitHub."""
    _python(session, "ruff", "check", "--fix", ".")
    _python(session, "ruff", "format", ".")
    _python(session, "pytest", "-q", "tests/unit/repository")


@nox.session
def types(session: nox.Session) -> None:
    """Mypy, strict."""
    _python(session, "mypy", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """The site, into site/."""
    _python(session, "mkdocs", "build", "--strict", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """The benchmarks that need no data, or those that are named: `nox -s bench -- methods`."""
    for name in session.posargs or BENCHMARKS:
        _python(session, f"benchmarks.{name}")


@nox.session
def package(session: nox.Session) -> None:
    """Wheel and sdist, into dist/, checked, and tried where no checkout is near."""
    shutil.rmtree("dist", ignore_errors=True)
    _python(session, "build", "--no-isolation")
    tests = ("tests/integration/test_package.py", "tests/journeys/test_demo.py")
    _python(session, "pytest", "-q", *tests, *session.posargs)


@nox.session
def locks(session: nox.Session) -> None:
    """The locks, for all supported Pythons at once."""
    compile_lock = ("uv", "pip", "compile", "pyproject.toml", *LOCK, *session.posargs)
    _python(session, *compile_lock, "-o", "requirements.lock")
    for extra in ("dev", "docs"):
        further = ("--extra", extra, "-c", "requirements.lock", "-o", f"requirements-{extra}.lock")
        _python(session, *compile_lock, *further)


def _python(session: nox.Session, module: str, *arguments: str) -> None:
    session.run(sys.executable, "-m", module, *arguments)
