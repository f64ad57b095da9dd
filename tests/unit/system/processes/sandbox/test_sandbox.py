"""What a confined child cannot do, and that the same child does it where it is not confined."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from commands import captured
from places import SUPPORT
from wording import fails

from edgeconv.system.processes import sandbox
from edgeconv.system.processes.sandbox import Access, policy
from edgeconv.system.processes.sandbox.policy import PROFILES, Wall
from edgeconv.system.processes.workers import Child
from edgeconv.types.errors import SandboxMissing, WorkerCrashed

ACTS = SUPPORT / "sandbox_acts.py"
SECRETS = {
    "GITHUB_TOKEN": "ghs_1",
    "AWS_SECRET_ACCESS_KEY": "x",
    "TF_SECRET": "y",
    "DATABASE_URL": "z",
}
# What even a process that is not confined may not do on some machines.
KERNELS = {"io_uring", "a user namespace", "keys", "userfaultfd", "perf", "shared memory"}
# Those of older runtimes too.
OTHER_PYTHONS = [
    path
    for path in sorted(Path("~/.pyenv/versions").expanduser().glob("3.*/bin/python"))
    if tuple(map(int, path.parts[-3].split(".")[:2])) >= (3, 7)
]
# Those that edgeconv itself runs in.
SUPPORTED_PYTHONS = [
    path for path in OTHER_PYTHONS if tuple(map(int, path.parts[-3].split(".")[:2])) >= (3, 10)
]


class Place(NamedTuple):
    """What a child is started with, and what is around it."""

    directory: Path
    facts: dict[str, Any]
    access: Access


@pytest.fixture
def place(tmp_path, monkeypatch) -> Iterator[Place]:
    """Canaries outside and at home, listeners, secrets in the environment."""
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    outside, home, child = (tmp_path / name for name in ("outside", "home", "child"))
    for folder in (outside, home, child):
        folder.mkdir()
    for folder in (outside, home):
        (folder / "canary").write_text("secret")
    (outside / "remove").touch()
    (child / "link-out").symlink_to(outside / "canary")
    monkeypatch.setenv("HOME", str(home))
    module = tmp_path / "user" / "my_layers.py"
    module.parent.mkdir()
    module.write_text("NUMBER = 3")
    module.with_name("secret.txt").write_text("secret")
    readable, writable = tmp_path / "model", tmp_path / "made"
    readable.write_text("a model")
    writable.mkdir()
    shared = Path("/dev/shm", f"edgeconv-canary-{os.getpid()}")
    shared.write_text("secret")
    with contextlib.ExitStack() as stack:
        for path in (shared, Path(f"{shared}-new")):
            stack.callback(path.unlink, missing_ok=True)

        def listener(family: int, kind: int, address: Any) -> Any:
            one = stack.enter_context(socket.socket(family, kind))
            one.bind(address)
            if kind == socket.SOCK_STREAM:
                one.listen()
            return one.getsockname()

        abstract = f"edgeconv-{os.getpid()}"
        listener(socket.AF_UNIX, socket.SOCK_STREAM, f"\0{abstract}")
        unix = listener(socket.AF_UNIX, socket.SOCK_STREAM, str(tmp_path / "s"))
        facts = {
            "outside": str(outside),
            "home": str(home),
            "parent": os.getpid(),
            "readable": str(readable),
            "writable": str(writable),
            "module": str(module),
            "shared": str(shared),
            "shared_device": shared.parent.stat().st_dev,
            "unix": unix,
            "abstract": abstract,
            "tcp_port": listener(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0))[1],
            "udp_port": listener(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0))[1],
        }
        (child / "facts.json").write_text(json.dumps(facts))
        yield Place(child, facts, Access(reads=(readable, module), writes=(writable,)))


GRANTED = ("readable", "module")


def words(place: Place, python: str = sys.executable) -> list[str]:
    directory = place.directory
    return [python, str(ACTS), str(directory / "facts.json"), str(directory / "answer.json")]


def acted(place: Place, python: str = sys.executable) -> None:
    """Have a child of `workers.Child` try everything."""
    command = words(place, python)
    Child(command, label="acts", cwd=place.directory, access=place.access).wait()


def run_code(code: str, directory: Path, *arguments: str, access: Access | None = None) -> None:
    """Python code in a child of `workers.Child`."""
    script = directory / "code.py"
    script.write_text(code)
    command = [sys.executable, str(script), *arguments]
    Child(command, label="it", cwd=directory, access=access or Access()).wait()


def answer(place: Place) -> list[dict[str, str]]:
    """What became of what is to be refused, and of what is not."""
    found: list[dict[str, str]] = json.loads((place.directory / "answer.json").read_text())
    return found


def assert_confined(place: Place) -> None:
    refused, allowed = answer(place)
    assert [name for name, said in refused.items() if said == "done"] == []
    assert {name: said for name, said in allowed.items() if said != "done"} == {}
    outside = Path(place.facts["outside"])
    assert sorted(path.name for path in outside.iterdir()) == ["canary", "remove"]
    assert (outside / "canary").read_text() == "secret"
    assert Path(place.facts["readable"]).read_text() == "a model"
    assert Path(place.facts["shared"]).read_text() == "secret"
    assert not Path(place.facts["shared"] + "-new").exists()


needs_landlock = pytest.mark.skipif(
    policy.available().kind != "landlock", reason=f"no Landlock: {policy.available()}"
)


@pytest.fixture
def bubblewrap() -> str:
    program = shutil.which("bwrap")
    if program is None:
        pytest.skip("there is no bubblewrap")
    if reason := policy._bubblewrap_fails(program):
        pytest.skip(f"bubblewrap makes no namespaces here: {reason}")
    return program


def test_what_is_refused_to_a_confined_child_is_done_without_a_sandbox(place):
    """Else the tests below would hold because nothing can be done here at all."""
    subprocess.run(words(place), cwd=place.directory, check=True)
    refused, allowed = answer(place)
    assert {name for name, said in refused.items() if said != "done"} <= KERNELS
    assert set(allowed.values()) == {"done"}


@needs_landlock
def test_a_child_behind_landlock_does_nothing_but_compute(place):
    acted(place)
    assert_confined(place)


@needs_landlock
@pytest.mark.parametrize("python", OTHER_PYTHONS, ids=lambda path: path.parts[-3])
def test_another_python_is_confined_as_well(python, place):
    acted(place, str(python))
    assert_confined(place)


def run_here(place: Place, code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Code in a process that sees no Landlock, with all that `code` needs at hand."""
    before = (
        "import sys, pathlib; from edgeconv.system.processes.sandbox import Access, using;"
        "from edgeconv.system.processes.workers import Child;"
        f"cwd = pathlib.Path({str(place.directory)!r});"
        f"access = Access(reads=tuple(map(pathlib.Path, {[place.facts[n] for n in GRANTED]!r})),"
        f" writes=(pathlib.Path({place.facts['writable']!r}),));"
        f"acts = {words(place)!r}\n"
    )
    command = [sys.executable, str(SUPPORT / "without_landlock.py"), sys.executable, "-c"]
    return captured([*command, before + code], env={**os.environ, **variables})


def test_where_the_kernel_has_no_landlock_bubblewrap_confines(place, bubblewrap):
    done = run_here(place, "Child(acts, label='acts', cwd=cwd, access=access).wait()")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert_confined(place)


def test_a_signal_that_ends_a_child_in_bubblewrap_is_told_as_such(place, bubblewrap):
    code = (
        "(cwd / 'code.py').write_text('import os; os.abort()'); acts[1:] = [str(cwd / 'code.py')];"
    )
    done = run_here(place, code + "Child(acts, label='it', cwd=cwd, access=access).wait()")
    assert "it was ended by SIGABRT" in done.stderr


def test_where_there_is_no_wall_that_is_said_once_and_the_child_runs(place):
    code = "Child(acts, label='acts', cwd=cwd, access=access).wait();" * 2
    done = run_here(place, code, PATH="/nowhere")
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == [
        "no complete sandbox here (the kernel has no Landlock, and there is no bubblewrap): "
        "only the scan protects from models"
    ]
    refused, allowed = answer(place)
    assert refused["overwrite outside"] == "done"
    # Environment and limits need nothing of the kernel.
    assert "done" not in (refused["secrets"], refused["a huge file"], refused["a core file"])
    assert set(allowed.values()) == {"done"}


def test_where_there_is_no_wall_and_one_is_required_nothing_runs(place):
    code = "with using('required'): Child(acts, label='acts', cwd=cwd, access=access).wait()"
    done = run_here(place, code, PATH="/nowhere")
    assert "SandboxMissing: there is no complete sandbox here: the kernel has no Landlock" in (
        done.stderr
    )
    assert "next: run it on Linux 6.2" in done.stderr
    assert not (place.directory / "answer.json").exists()


def test_off_is_said_once_and_confines_nothing(place, caplog):
    policy._warned.clear()
    with sandbox.using("off"):
        acted(place)
        acted(place)
    assert [record.message for record in caplog.records] == [
        "--sandbox off: models and data are read without a sandbox"
    ]
    assert answer(place)[0]["overwrite outside"] == "done"


def test_a_child_that_cannot_confine_itself_says_so(place, caplog, monkeypatch):
    """As a Python may do that is not this one: the parent cannot know before."""
    missing = Wall(kind="bubblewrap", filters=True, program="/no/such/bwrap")
    monkeypatch.setattr(policy, "available", lambda: missing)
    policy._warned.clear()
    acted(place)
    (said,) = (record.message for record in caplog.records)
    assert "could not be confined: [Errno 2] No such file or directory" in said
    (place.directory / "answer.json").unlink()
    with sandbox.using("required"), fails(SandboxMissing):
        acted(place)
    assert not (place.directory / "answer.json").exists()


@needs_landlock
def test_a_child_that_is_made_of_32_bits_is_killed(tmp_path):
    """Calls of that kind have other numbers, which the filter would take for others."""
    if os.uname().machine != "x86_64":
        pytest.skip("only x86 has them")
    code = (
        "import ctypes, mmap\n"
        "page = mmap.mmap(-1, 4096, prot=7)\n"
        # mov eax, 20; int 0x80; ret
        r"page.write(b'\xb8\x14\0\0\0\xcd\x80\xc3')"
        "\n"
        "address = ctypes.addressof(ctypes.c_char.from_buffer(page))\n"
        "ctypes.CFUNCTYPE(ctypes.c_int)(address)()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    with fails(WorkerCrashed):
        run_code(code, tmp_path)


@needs_landlock
def test_threads_that_were_there_before_are_none(tmp_path):
    """Landlock holds for the thread that asks for it, and for those it starts."""
    code = "import os; assert len(os.listdir('/proc/self/task')) == 1"
    run_code(code, tmp_path)


def test_a_fork_bomb_of_allowed_code_ends(tmp_path):
    if not os.geteuid():
        pytest.skip("root is held to no number of processes")
    code = "import resource; assert resource.getrlimit(resource.RLIMIT_NPROC)[0] <= 2**15"
    access = Access(profile="code")
    run_code(code, tmp_path, access=access)


# Profiles


CODE = """
import os, pathlib, socket, subprocess, sys
outside = pathlib.Path(sys.argv[1])
assert (outside / 'canary').read_text() == 'secret'
assert 'GITHUB_TOKEN' in os.environ
subprocess.run(['true'], check=True)
socket.socket().close()
pathlib.Path(sys.argv[2], 'made').write_text('x')
try:
    (outside / 'canary').write_text('x')
except PermissionError:
    sys.exit(0)
sys.exit('it wrote outside')
"""


@needs_landlock
def test_code_that_was_allowed_reads_and_runs_what_it_likes_and_writes_where_it_may(place):
    access = Access(profile="code", writes=place.access.writes)
    outside, writable = place.facts["outside"], place.facts["writable"]
    run_code(CODE, place.directory, outside, writable, access=access)
    assert (Path(place.facts["writable"]) / "made").read_text() == "x"


CLUSTER = """
import os, socket, sys
port = int(sys.argv[1])
socket.create_connection(('127.0.0.1', port)).close()
for family in (socket.AF_UNIX, getattr(socket, 'AF_PACKET', 17)):
    try:
        socket.socket(family)
    except PermissionError:
        continue
    sys.exit('a socket within the machine')
socket.getaddrinfo('localhost', 80)
"""


@needs_landlock
def test_members_of_a_cluster_reach_others_and_nothing_else(place):
    access = Access(profile="cluster")
    run_code(CLUSTER, place.directory, str(place.facts["tcp_port"]), access=access)
    Child(words(place), label="acts", cwd=place.directory, access=access).wait()
    reached = {"tcp", "udp"}
    assert {name for name, said in answer(place)[0].items() if said == "done"} == reached


def test_a_program_knows_where_its_agent_is_and_no_token(tmp_path, monkeypatch):
    monkeypatch.setenv("SSH_AUTH_SOCK", "/run/agent")
    monkeypatch.setenv("GITHUB_TOKEN", "ghs_1")
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    access = Access(profile="programs")
    Child(["env"], label="env", cwd=tmp_path, access=access).wait()
    said = dict(line.split("=", 1) for line in (tmp_path / "log.txt").read_text().splitlines())
    assert said["SSH_AUTH_SOCK"] == "/run/agent"
    assert said["HOME"] == os.environ["HOME"]
    assert not {"GITHUB_TOKEN", "OPENAI_API_KEY"} & said.keys()


POOLS = """
import multiprocessing.pool, sys, threading, time
sys.path.insert(0, sys.argv[1])
from pools import make_pools_of_threads

try:
    multiprocessing.pool.ThreadPool(2)
except PermissionError:
    make_pools_of_threads()
else:
    raise AssertionError('nothing is in the way of a pool here')
for count in range(1, 20):
    pool = multiprocessing.pool.ThreadPool(2)
    assert pool.map(abs, range(-9, 0)) == list(range(9, 0, -1))
    # As TensorFlow, which does not wait for them.
    pool.close()
pool.join()
with multiprocessing.pool.ThreadPool(3, initializer=print, initargs=('began',)) as pool:
    assert sorted(pool.imap_unordered(len, ['a', 'bc'])) == [1, 2]
    assert pool.apply_async(divmod, (7, 2)).get(30) == (3, 1)
    try:
        pool.apply(divmod, (1, 0))
    except ZeroDivisionError:
        pass
for _ in range(3000):
    time.sleep(0.01)
    if threading.active_count() == 1:
        sys.exit(0)
sys.exit(f'threads stay: {threading.enumerate()}')
"""


@needs_landlock
@pytest.mark.parametrize("profile", ["confined", "training", "cluster"])
@pytest.mark.parametrize(
    "python", [Path(sys.executable), *SUPPORTED_PYTHONS], ids=lambda path: path.parts[-3]
)
def test_pools_of_threads_need_no_memory_that_programs_share(python, profile, tmp_path):
    """As TensorFlow's collectives make them, in each Python that it runs in; their threads end."""
    (tmp_path / "code.py").write_text(POOLS)
    command = [str(python), str(tmp_path / "code.py"), str(Path(sandbox.__file__).parent)]
    access = Access(profile=profile)
    Child(command, label="pools", cwd=tmp_path, access=access).wait()


@needs_landlock
@pytest.mark.parametrize("profile", ["training", "cluster"])
def test_a_training_has_the_home_of_its_user_wherever_the_table_of_users_puts_it(
    profile, tmp_path, monkeypatch
):
    home = tmp_path / "home"
    (home / ".keras").mkdir(parents=True)
    (home / ".keras" / "keras.json").write_text("{}")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("KERAS_HOME", raising=False)
    code = "import pathlib; (pathlib.Path.home() / '.keras' / 'keras.json').read_text()"
    (tmp_path / "child").mkdir()
    run_code(code, tmp_path / "child", access=Access(profile=profile))


@pytest.mark.parametrize(
    ("name", "passes"),
    [
        *(("PATH", True), ("LC_ALL", True), ("TF_NUM_INTRAOP_THREADS", True)),
        *(("OMP_NUM_THREADS", True), ("PYTHONPATH", True), ("EDGECONV_CACHE_DIR", True)),
        *(("TF_API_KEY", False), ("KERAS_TOKEN", False), ("EDGECONV_PASSWORD", False)),
        *(("PATH_TO_SECRET", False), ("HOME", False), ("SSH_AUTH_SOCK", False)),
        *(("AWS_PROFILE", False), ("PGPASSWORD", False), ("", False)),
    ],
)
def test_of_the_environment_a_confined_child_is_told_what_computing_needs(name, passes):
    assert PROFILES["confined"].passes(name) is passes


def test_a_directory_to_write_to_is_made(tmp_path):
    made = tmp_path / "child" / "deep" / "out"
    (tmp_path / "child").mkdir()
    code = f"open({str(made / 'file')!r}, 'w').close()"
    access = Access(writes=(made,))
    run_code(code, tmp_path, access=access)
    assert (made / "file").exists()


@needs_landlock
def test_programs_that_a_gpu_needs_run_and_no_others(tmp_path):
    """As where there is an NVIDIA GPU: programs of some directories, with the loader."""
    (tmp_path / "bin").mkdir()
    shutil.copy("/bin/true", tmp_path / "bin" / "true")
    made = sandbox.start_command(
        [sys.executable, "-m", "timeit"], cwd=tmp_path, access=Access(), environment={}
    )
    policy = Path(made.command[2])
    policy.write_text(
        json.dumps(
            {**json.loads(policy.read_text()), "runs": [str(tmp_path / "bin"), "/lib", "/lib64"]}
        )
    )
    (tmp_path / "code.py").write_text(
        "import subprocess, sys\n"
        "subprocess.run([sys.argv[1] + '/bin/true'], check=True)\n"
        "try:\n    subprocess.run(['/bin/true'])\n"
        "except PermissionError:\n    sys.exit(0)\n"
        "sys.exit('another program ran')\n"
    )
    words = [*made.command[:3], str(tmp_path / "code.py"), str(tmp_path)]
    subprocess.run(words, check=True, cwd=tmp_path, env=made.environment)
