import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from commands import captured
from report_example import report as example_report
from wording import fails

from edgeconv import __version__, cli
from edgeconv.cli import run
from edgeconv.cli.printing import Clock
from edgeconv.requests.bench import BenchRequest
from edgeconv.requests.convert import io_pair
from edgeconv.requests.request import request_of
from edgeconv.requests.texts import comma_list
from edgeconv.system.processes.progress import CountedLine
from edgeconv.system.processes.sandbox import available
from edgeconv.system.store import locked, tool_versions
from edgeconv.types.errors import UsageError
from edgeconv.types.execution import usable_cores

COMMANDS = ("init", "demo", "convert", "bench", "check", "inspect", "config")


@pytest.fixture(autouse=True)
def _sigterm_as_before() -> Iterator[None]:
    """`run` makes SIGTERM an exception, which only a program of its own should do."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def program(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "edgeconv", *arguments]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    return subprocess.run(command, text=True, check=False, **options)


def test_help_lists_every_command_and_the_exit_codes(capsys):
    assert run(["--help"]) == 0
    said = capsys.readouterr().out
    for name in COMMANDS:
        assert re.search(rf"^  {name} +[A-Z]", said, re.MULTILINE), name
    assert "Exit codes: 0 done, 1 a limit is broken" in said


def test_no_arguments_at_all_show_the_help_and_are_a_usage_error(capsys):
    assert run([]) == 2
    said = capsys.readouterr()
    assert "Convert:" in said.out + said.err


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_that_is_listed_exists_and_has_a_help_of_its_own(name, capsys):
    assert run([name, "-h"]) == 0
    assert f"Usage: edgeconv {name} " in capsys.readouterr().out


def test_version_tells_the_tools_versions_too(capsys):
    assert run(["--version"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"edgeconv {__version__} (tensorflow ")
    for name, version in tool_versions().items():
        assert f"{name} {version}" in said
    assert said.splitlines()[1] == f"sandbox: {available()}"


def test_version_is_json_where_that_is_asked_for(capsys):
    assert run(["--version", "--json"]) == 0
    said = msgspec.json.decode(capsys.readouterr().out)
    assert said.pop("sandbox") == str(available())
    assert said == tool_versions()
    assert run(["--json", "inspect", "model"]) == 2
    assert "is for --version only" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["convert", "{}/gone", "--to", "float32"], 3, "gone"),
        (["convert", "{}/gone", "--to", "flota32"], 2, "did you mean 'float32'"),
        (["convert", "{}/gone", "--to", "int8", "--io", "int9"], 2, "did you mean 'int8'"),
        (["convert", "{}/gone", "--to", "int8", "float16"], 2, "as in --to int8,float16"),
        (["inspect", "{}/gone"], 3, "gone"),
        (["bench", "{}/gone"], 3, "gone"),
        (["check", "{}/gone", "--config", "{}/gone.toml"], 2, "gone.toml does not exist"),
        (["inspect", "{}/modle.keras"], 3, "did you mean "),
        (["report"], 2, "edgeconv report --help"),
        (["doctor", "m.keras", "--data", "x.npz"], 2, "DATA is typed without --data"),
        (["report", "{}/model.keras"], 3, "edgeconv bench"),
        (["compare", "{}", "{}"], 3, "report.json does not exist"),
        (["sweep", "{}/model.keras"], 2, "not a TOML file"),
        (["init", "{}/gone"], 3, "gone"),
        (["config", "show"], 2, "there is no configuration here"),
        (["check", "r.json"], 3, "r.json does not exist"),
    ],
)
def test_what_is_refused_ends_with_its_exit_code_one_message_and_nothing_written(
    arguments, code, message, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    Path("model.keras").write_bytes(b"PK\0" + b"x" * 9000)
    assert run([argument.format(tmp_path) for argument in arguments]) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("error: ") == 1
    assert message in said.err
    assert "Traceback" not in said.err
    assert list(tmp_path.iterdir()) == [tmp_path / "model.keras"]


class Command:
    """Stands in for a command's module."""

    def __init__(self, outcome: BaseException | int) -> None:
        self.check = click.Command("check", callback=self._call)
        self._outcome = outcome

    def _call(self) -> None:
        if isinstance(self._outcome, int):
            click.get_current_context().exit(self._outcome)
        raise self._outcome


@pytest.mark.parametrize(
    ("outcome", "code", "message"),
    [
        (0, 0, ""),
        (1, 1, ""),
        (4, 4, ""),
        (UsageError("wrong", hint="right"), 2, "error: wrong\n  next: right\n"),
        (KeyboardInterrupt(), 130, "\ninterrupted\n"),
        (click.Abort(), 130, "interrupted\n"),
        (OSError(28, "No space left", "/x"), 4, "error: [Errno 28] No space left: '/x'\n"),
        (
            click.FileError("f", "odd"),
            2,
            "error: could not open file 'f': odd\n  next: `edgeconv --help` shows the usage\n",
        ),
    ],
)
def test_every_end_of_a_command_has_its_exit_code(outcome, code, message, capfd, monkeypatch):
    monkeypatch.setattr(cli, "import_module", lambda _: Command(outcome))
    monkeypatch.setattr(cli, "_discard_output", lambda: None)
    assert run(["check"]) == code
    said = capfd.readouterr()
    assert (said.out, said.err) == ("", message)


def test_a_fault_of_the_program_itself_is_not_hidden(monkeypatch):
    monkeypatch.setattr(cli, "import_module", lambda _: Command(ZeroDivisionError("bug")))
    with fails(ZeroDivisionError):
        run(["check"])


def test_a_fault_of_the_program_itself_says_where_its_traceback_is(tmp_path):
    code = (
        "import edgeconv.cli as cli\n"
        "def buggy(_): return {}['a key']\n"
        "cli.import_module = buggy; cli.main(['check'])"
    )
    environment = {**os.environ, "EDGECONV_CACHE_DIR": str(tmp_path)}
    done = captured([sys.executable, "-c", code], env=environment)
    assert done.returncode == 4
    first, hint = done.stderr.splitlines()
    message, _, log = first.partition("; the traceback is in ")
    assert message == "error: internal error: KeyError: 'a key'"
    assert "edgeconv --version" in hint
    assert "in buggy" in Path(log).read_text()


# The world outside


def test_a_reader_that_takes_one_line_makes_no_noise():
    command = f"'{sys.executable}' -m edgeconv --help | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Usage: edgeconv")
    assert done.stderr == ""


def test_the_module_imports_nothing_from_the_current_directory(tmp_path):
    for name in ("click", "msgspec", "rich"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(9)", encoding="utf-8")
    for flags in ([], ["-I"]):
        command = [sys.executable, *flags, "-m", "edgeconv", "--version"]
        assert subprocess.run(command, cwd=tmp_path, check=False).returncode == 0


@pytest.mark.parametrize("broken", [False, True])
def test_a_reader_that_has_gone_ends_it_quietly_and_never_as_a_pass_or_a_verdict(broken, tmp_path):
    (tmp_path / "report.json").write_bytes(msgspec.json.encode(example_report()))
    limit = 1 if broken else 10**9
    (tmp_path / "budget.toml").write_text(f"[budget]\nmax-size-bytes = {limit}\n")
    read, write = os.pipe()
    os.close(read)
    arguments = ["check", "report.json", "--config", "budget.toml"]
    done = program(*arguments, stdout=write, cwd=tmp_path)
    os.close(write)
    assert (done.returncode, done.stderr) == (cli.READER_GONE, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")  # noqa: PTH110
def test_an_output_that_is_full_is_told_and_is_no_verdict():
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = program("--help", stdout=full)
    assert done.returncode == 4
    assert done.stderr == "error: [Errno 28] No space left on device\n"


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_an_interrupted_program_says_so_in_one_line_and_ends_with_130(name, tmp_path):
    """Waiting for a lock that this process holds, so that it is known where it is."""
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "import click, edgeconv.cli as cli\n"
        "from edgeconv.system.store import locked\n"
        "from pathlib import Path\n"
        "class Module:\n"
        "    @click.command()\n"
        "    @staticmethod\n"
        "    def check():\n"
        "        with locked(Path('lock'), on_wait=lambda: click.echo('waiting')): pass\n"
        "cli.import_module = lambda _: Module\n"
        "cli.main(['check'])\n"
    )
    with (
        locked(tmp_path / "lock"),
        subprocess.Popen(
            [sys.executable, "-u", "-c", code],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(getattr(signal, name))
        _, said = process.communicate(timeout=120)
    assert process.returncode == 130
    assert said.strip() == "interrupted"


def on_a_terminal(code: str, environment: dict[str, str]) -> str:
    """What a program shows whose output and errors are a terminal."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env={**os.environ, "TERM": "xterm-256color", **environment},
    )
    os.close(follower)
    shown = b""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            part = os.read(leader, 65536)
        except OSError:
            break  # So Linux says that nobody has the other end any more.
        shown += part
        if not part:
            break
    os.close(leader)
    assert process.wait(120) == 0, shown
    return shown.decode()


PROGRESS = (
    "import time\n"
    "from edgeconv.cli.printing import progress\n"
    "with progress(quiet={quiet}) as tell:\n"
    "    tell('[bold]working[/bold]')\n"
    "    time.sleep(0.3)\n"
)
COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-9][0-9;]*m|\x1b\[[0-9;]*9[0-7]m")


def test_progress_on_a_terminal_is_one_line_that_is_removed_at_the_end():
    shown = on_a_terminal(PROGRESS.format(quiet=False), {"NO_COLOR": ""})
    assert "[bold]working[/bold]" in shown
    assert COLOUR.search(shown)
    assert "\x1b[2K" in shown.rpartition("working")[2]


def test_no_color_leaves_the_progress_and_takes_the_colour():
    shown = on_a_terminal(PROGRESS.format(quiet=False), {"NO_COLOR": "1"})
    assert "[bold]working[/bold]" in shown
    assert not COLOUR.search(shown)


def test_quiet_shows_nothing_even_on_a_terminal():
    assert on_a_terminal(PROGRESS.format(quiet=True), {}) == ""


def test_progress_in_a_log_file_is_plain_lines_on_stderr():
    code = PROGRESS.format(quiet=False)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "[bold]working[/bold]\n")


def test_in_a_log_file_a_count_is_one_line():
    code = (
        "from edgeconv.cli.printing import progress\n"
        "from edgeconv.system.processes.progress import CountedLine\n"
        "with progress(quiet=False) as tell:\n"
        "    for done in range(5): tell(CountedLine('timing', done, 5))\n"
        "    tell('writing')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "timing\nwriting\n"


def test_a_count_tells_the_time_that_is_left_once_it_can_be_known():
    seconds = iter([10.0, 10.0, 13.0, 40.0, 40.0, 41.0, 5000.0])
    clock = Clock(lambda: next(seconds))
    assert clock.shown("reading") == "reading"
    assert clock.shown(CountedLine("timing", 0, 100)) == "timing: 0 of 100"
    assert clock.shown(CountedLine("timing", 10, 100)) == "timing: 10 of 100, about 27 s left"
    # Another count begins anew, whatever it is called.
    assert clock.shown(CountedLine("timing", 0, 1000)) == "timing: 0 of 1,000"
    assert clock.shown(CountedLine("trial", 1, 1000)) == "trial: 1 of 1,000, about 17 min left"
    assert clock.shown(CountedLine("trial", 1000, 1000)) == "trial: 1,000 of 1,000"


# Options to values


@pytest.mark.parametrize(
    ("texts", "pair"),
    [
        ((), ("float32", "float32")),
        (("int8",), ("int8", "int8")),
        (("input=uint8",), ("uint8", "float32")),
        (("output=int8",), ("float32", "int8")),
        (("input=uint8", "output=int8"), ("uint8", "int8")),
        (("output=int8", "input=uint8"), ("uint8", "int8")),
        (("int8", "output=int8"), ("int8", "int8")),
        (("float32",), ("float32", "float32")),
    ],
)
def test_io_sets_both_sides_or_the_one_it_names(texts, pair):
    assert io_pair(texts) == pair


@pytest.mark.parametrize(
    "texts",
    [
        ("int9",),
        ("",),
        ("input=",),
        ("inputs=int8",),
        ("=int8",),
        ("input=output=int8",),
        ("int8", "uint8"),
        ("int8", "output=uint8"),
        ("input=int8", "float32"),
    ],
)
def test_an_io_that_makes_no_sense_is_refused(texts):
    with fails(UsageError):
        io_pair(texts)


def test_a_comma_list_drops_spaces_and_what_is_empty():
    assert comma_list(" a, b,,c ,") == ["a", "b", "c"]
    assert comma_list("") == []


def test_a_list_that_is_typed_twice_is_one_list_and_of_any_other_option_the_last_counts():
    convert = cli.cli.get_command(click.Context(cli.cli), "convert")
    assert isinstance(convert, click.Command)
    # Flags, and options that are made for it, may be repeated as before.
    words = ["m.keras", "--to", "int8", "--to", "dynamic,float16", "--full-integer"]
    others = ["--full-integer", "--state", "a=b", "--state", "c=d"]
    call = convert.make_context("convert", [*words, *others]).obj
    assert call.request.to == ("int8", "dynamic", "float16")
    words = ["m.keras", "--to", "int8", "--out", "a", "--out", "b"]
    call = convert.make_context("convert", words).obj
    assert call.request.directory == "b"


def test_execution_options_become_seconds_bytes_and_threads():
    given = {"models": ("m",), "timeout-s": 5.0, "memory-limit-mib": 3, "no-cache": True}
    made = request_of(BenchRequest, given | {"trust-model": ("0" * 64,)}).execution
    assert made.threads == usable_cores()
    assert (made.allowance.timeout_s, made.allowance.memory_bytes) == (5.0, 3 * 2**20)
    assert not made.use_cache
    assert made.trusted == ("0" * 64,)
    assert request_of(BenchRequest, given | {"threads": 7}).execution.threads == 7


def test_a_fault_in_edgeconv_itself_does_not_look_like_a_broken_limit():
    script = "from edgeconv import cli; cli.run = lambda _: 1 / 0; cli.main()"
    done = captured([sys.executable, "-c", script])
    assert done.returncode == 4
    assert "ZeroDivisionError" in done.stderr


# The shell


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("con", ["plain,convert", "plain,config"]),
        ("convert exp", ["file,exp"]),
        ("convert m --calibration ", ["file,"]),
        ("convert m --to int8,dyn", ["plain,int8,dynamic"]),
        ("bench m --metric mas", ["plain,masked_accuracy"]),
        ("embed m --target zep", ["plain,zephyr"]),
        ("convert m --engine t", ["plain,tflite"]),
    ],
)
def test_the_shell_completes_commands_files_and_words(words, offered):
    typed = f"edgeconv {words}"
    environment = {
        "_EDGECONV_COMPLETE": "bash_complete",
        "COMP_WORDS": typed,
        "COMP_CWORD": str(len(typed.split(" ")) - 1),
    }
    done = subprocess.run(
        [sys.executable, "-c", "from edgeconv.cli import main; main()"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == offered


def test_on_windows_the_way_out_is_said(monkeypatch, capsys):
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(SystemExit) as ended:
        cli.main(["--help"])
    assert ended.value.code == 2
    assert "WSL 2" in capsys.readouterr().err
