"""Signatures of published files: of the files and their verdicts, for other readers too."""

from __future__ import annotations

import base64
import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from evidence_project import MODEL, make_project

import edgeconv
from edgeconv.cli import run
from edgeconv.gate.evidence import PASSPHRASE
from edgeconv.types import Trust

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edgeconv.types import Link

OPENSSL = shutil.which("openssl")
pytestmark = pytest.mark.skipif(OPENSSL is None, reason="keys are made with openssl")
SIGNATURE = Path("out/model.sig")
FILE = Path("out", MODEL)


def openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


def model_signing(*arguments: str) -> int:
    """The exit code of the command of model-signing itself."""
    command = [sys.executable, "-m", "model_signing", *arguments]
    return subprocess.run(command, check=False, capture_output=True).returncode


def make_keys(place: Path) -> None:
    for name, curve in (("key", "prime256v1"), ("other", "secp384r1")):
        private, public = str(place / f"{name}.pem"), str(place / f"{name}.pub")
        openssl("ecparam", "-name", curve, "-genkey", "-noout", "-out", private)
        openssl("ec", "-in", private, "-pubout", "-out", public)
    key = str(place / "key.pem")
    openssl("ec", "-in", key, "-aes256", "-passout", "pass:hush", "-out", str(place / "locked.pem"))
    openssl("genrsa", "-out", str(place / "rsa.pem"), "2048")
    make_certificates(place)


def make_certificates(place: Path) -> None:
    """A root, and a certificate of key.pem that it vouches for."""
    root, extensions = str(place / "root.pem"), place / "extensions"
    extensions.write_text("keyUsage=critical,digitalSignature\n")
    openssl(
        *("req", "-x509", "-new", "-key", str(place / "other.pem"), "-subj", "/CN=root"),
        *("-days", "30", "-out", root),
    )
    request = str(place / "request.pem")
    openssl("req", "-new", "-key", str(place / "key.pem"), "-subj", "/CN=us", "-out", request)
    openssl(
        *("x509", "-req", "-in", request, "-CA", root, "-CAkey", str(place / "other.pem")),
        *("-CAcreateserial", "-days", "20", "-extfile", str(extensions)),
        *("-out", str(place / "certificate.pem")),
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    before, place = Path.cwd(), tmp_path_factory.mktemp("signing")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGECONV_CACHE_DIR", str(place / "cache"))
        make_project(place / "project")
        os.chdir(before)
        make_keys(place)
        yield place


@pytest.fixture
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with keys, and a copy of what was published and measured in `out`."""
    for file in made.iterdir():
        if file.is_file():
            shutil.copy(file, tmp_path)
    for folder in ("net.tflites", "reports", "app/model"):
        shutil.copytree(made / "project" / folder, tmp_path / "out" / folder)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def signatures(*paths: str, **trust: Any) -> list[Link]:
    links = edgeconv.verify(*paths, trust=Trust(**trust)).links
    return [link for link in links if link.link == "signature"]


def states(*paths: str, **trust: Any) -> set[str]:
    return {link.state for link in signatures(*paths, **trust)}


def statement() -> dict[str, Any]:
    bundle = json.loads(SIGNATURE.read_bytes())
    decoded: dict[str, Any] = json.loads(base64.b64decode(bundle["dsseEnvelope"]["payload"]))
    return decoded


def test_what_is_signed_is_verified_by_the_key_here_and_by_model_signing(here: Path) -> None:
    assert run(["verify", "out", "--sign", "key.pem"]) == 0
    assert states("out", key="key.pub") == {"verified"}
    signed = ["verify", "key", "out", "--signature", str(SIGNATURE), "--public_key"]
    assert model_signing(*signed, "key.pub") == 0
    assert model_signing(*signed, "other.pub") != 0
    # Again, over the old signature, and moved elsewhere.
    assert run(["verify", "out", "--sign", "other.pem"]) == 0
    Path("out").rename("moved")
    assert states("moved", key="other.pub") == {"verified"}


def test_what_model_signing_signed_is_verified_here_and_has_no_verdict(here: Path) -> None:
    arguments = ["--private_key", "key.pem", "--signature", str(SIGNATURE)]
    assert model_signing("sign", "key", "out", *arguments) == 0
    (link,) = signatures("out", key="key.pub")
    assert (link.state, link.text) == ("verified", "signed by the key key.pub")
    (link,) = signatures("out")
    assert link.state == "unchecked"
    assert run(["verify", "out", "--key", "other.pub"]) == 1


def test_the_statement_binds_outcome_limits_and_report_to_the_file(here: Path) -> None:
    assert run(["verify", "out", "--sign", "key.pem"]) == 0
    (artifact,) = statement()["predicate"]["edgeconv"]["artifacts"]
    resources = {one["name"]: one["digest"] for one in statement()["predicate"]["resources"]}
    assert artifact["file"] == str(MODEL)
    assert artifact["sha256"] == artifact["verdict"]["sha256"] == resources[str(MODEL)]
    verdict = artifact["verdict"]
    assert verdict["outcome"] == "passed"
    (limit,) = verdict["passed"]
    assert (limit["limit"], limit["allowed"]) == ("max-size-bytes", 100_000)
    assert verdict["report_sha256"] == resources["reports/report.json"]


def test_a_verdict_that_was_signed_cannot_be_moved_to_another_file(here: Path) -> None:
    assert run(["verify", str(FILE), "--sign", "key.pem"]) == 0
    beside = Path(f"{FILE}.sig")
    assert states(str(FILE), key="key.pub") == {"verified"}
    # Another file, with a manifest that fits it, under the name.
    content = FILE.read_bytes() + b"\0" * 16
    FILE.write_bytes(content)
    manifest = json.loads(FILE.with_suffix(".json").read_bytes())
    del manifest["checksum"]
    import hashlib

    manifest |= {"sha256": hashlib.sha256(content).hexdigest(), "size_bytes": len(content)}
    FILE.with_suffix(".json").write_text(json.dumps(manifest))
    FILE.with_suffix(".verdict.json").unlink()
    failed = [link for link in signatures(str(FILE), key="key.pub") if link.state == "failed"]
    assert any("changed after signing" in link.text for link in failed)
    assert beside.is_file()


def test_a_verdict_that_is_not_the_signed_one_is_found(here: Path) -> None:
    assert run(["verify", str(FILE), "--sign", "key.pem"]) == 0
    verdict = FILE.with_suffix(".verdict.json")
    content = json.loads(verdict.read_bytes())
    del content["checksum"]
    verdict.write_text(json.dumps(content | {"date": "2020-01-01T00:00:00+00:00"}))
    texts = [link.text for link in signatures(str(FILE), key="key.pub")]
    assert "its verdict is not the one that was signed: sign again" in texts


def test_unsigned_wrong_key_and_changed_after_signing_are_told_apart(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["verify", "out", "--key", "key.pub"]) == 1
    assert "it is not signed by a signer that you trust" in capsys.readouterr().out
    assert run(["verify", "out", "--require", "signature"]) == 1
    assert "a verified signature is required" in capsys.readouterr().out
    assert run(["verify", "out", "--sign", "key.pem"]) == 0
    assert run(["verify", "out", "--key", "other.pub"]) == 1
    assert "it was not signed by the key other.pub" in capsys.readouterr().out
    (Path("out") / "added").write_text("")
    assert run(["verify", "out", "--key", "key.pub"]) == 1
    assert "added was added after signing" in capsys.readouterr().out
    (Path("out") / "added").unlink()
    (Path("out") / "reports/report.html").unlink()
    assert run(["verify", "out", "--key", "key.pub"]) == 1
    assert "reports/report.html was signed and is missing" in capsys.readouterr().out


def test_every_byte_of_a_signature_counts_where_a_key_is_given(here: Path) -> None:
    assert run(["verify", "out", "--sign", "key.pem"]) == 0
    bundle = json.loads(SIGNATURE.read_bytes())
    envelope = bundle["dsseEnvelope"]
    for name in ("payload", "sig"):
        holder = envelope if name == "payload" else envelope["signatures"][0]
        whole = holder[name]
        data = bytearray(base64.b64decode(whole))
        for place in (0, len(data) // 2, len(data) - 1):
            changed = bytearray(data)
            changed[place] ^= 1
            holder[name] = base64.b64encode(changed).decode()
            SIGNATURE.write_text(json.dumps(bundle))
            assert "failed" in states("out", key="key.pub"), (name, place)
        holder[name] = whole
    for content in (b"", b"{}", b"[]", b"\0", b'{"dsseEnvelope": 1}', b"[" * 100_000):
        SIGNATURE.write_bytes(content)
        assert "failed" in states("out", key="key.pub")
        assert "failed" in states("out")


def test_a_certificate_signs_and_its_root_is_trusted(here: Path) -> None:
    sign = ["verify", "out", "--sign", "key.pem", "--certificate", "certificate.pem"]
    assert run([*sign, "--certificate", "root.pem"]) == 0
    assert run(["verify", "out", "--certificate", "root.pem"]) == 0
    theirs = ["--signature", str(SIGNATURE), "--certificate_chain", "root.pem"]
    assert model_signing("verify", "certificate", "out", *theirs) == 0
    # It is nobody's key, and another root does not vouch for it.
    assert run(["verify", "out", "--key", "key.pub"]) == 1
    openssl(
        *("req", "-x509", "-new", "-key", "key.pem", "-subj", "/CN=evil", "-days", "3"),
        *("-out", "evil.pem"),
    )
    assert run(["verify", "out", "--certificate", "evil.pem"]) == 1


def test_what_does_not_verify_is_not_signed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    FILE.write_bytes(FILE.read_bytes() + b"\0")
    assert run(["verify", "out", "--sign", "key.pem"]) == 1
    assert "nothing was signed" in capsys.readouterr().err
    assert not SIGNATURE.exists()


def test_a_passphrase_comes_from_the_environment(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(PASSPHRASE, "wrong")
    assert run(["verify", "out", "--sign", "locked.pem"]) == 2
    assert not SIGNATURE.exists()
    monkeypatch.setenv(PASSPHRASE, "hush")
    assert run(["verify", "out", "--sign", "locked.pem"]) == 0
    assert states("out", key="key.pub") == {"verified"}
    monkeypatch.delenv(PASSPHRASE)
    done = subprocess.run(
        [sys.executable, "-m", "edgeconv", "verify", "out", "--sign", "locked.pem"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert f"next: set {PASSPHRASE}" in done.stderr
    capsys.readouterr()


def test_a_passphrase_is_asked_for_at_a_terminal_and_not_shown(here: Path) -> None:
    program, terminal = pty.openpty()
    command = [sys.executable, "-m", "edgeconv", "verify", "out", "--sign", "locked.pem"]
    with subprocess.Popen(
        command, stdin=terminal, stdout=subprocess.PIPE, stderr=terminal, start_new_session=True
    ) as process:
        os.close(terminal)
        said = b""
        while b"Passphrase" not in said:
            said += os.read(program, 1000)
        os.write(program, b"hush\n")
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    assert b"hush" not in said
    assert states("out", key="key.pub") == {"verified"}


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--sign", "rsa.pem"], 2, "it is not an elliptic curve key"),
        (["--sign", "nothing.pem"], 2, "nothing.pem cannot be read"),
        (["--sign", "key.pub"], 2, "cannot be used to sign"),
        (["--key", "key.pem"], 2, "cannot be used to sign or verify"),
        (["--key", "key.pub", "--certificate", "root.pem"], 2, "give one of"),
        (["--sign", "key.pem", "--key", "key.pub"], 2, "in another run"),
        (["--identity", "me@example.com"], 2, "go together"),
        (["--sign", "locked.pem", "--certificate", "certificate.pem"], 2, "has a passphrase"),
    ],
)
def test_a_key_that_cannot_be_used_is_refused(
    here: Path, capsys: pytest.CaptureFixture[str], options: list[str], code: int, said: str
) -> None:
    assert run(["verify", "out", "--sign", "key.pem"]) == 0
    SIGNATURE.rename("kept.sig")
    kept = Path("kept.sig").read_bytes()
    SIGNATURE.write_bytes(kept)
    capsys.readouterr()
    assert run(["verify", "out", *options]) == code
    assert said in capsys.readouterr().err
    assert SIGNATURE.read_bytes() == kept


def test_sigstore_without_a_network_is_an_error_that_says_so(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # A proxy that is not there: nothing leaves this machine.
    for name in ("http_proxy", "https_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("XDG_DATA_HOME", str(here / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(here / "cache"))
    assert run(["verify", "out", "--sign", "sigstore"]) == 4
    assert "Sigstore needs its servers" in capsys.readouterr().err
    assert not SIGNATURE.exists()


def test_without_the_extra_the_error_says_what_to_install(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "model_signing", None)
    assert run(["verify", "out", "--sign", "key.pem"]) == 4
    assert "pip install 'edgeconv[sign]'" in capsys.readouterr().err


def test_nothing_of_the_extra_is_loaded_before_it_is_used(here: Path) -> None:
    code = (
        "import sys; from edgeconv.cli import run; assert run(['verify', 'out']) == 0;"
        "assert not {'model_signing', 'cryptography', 'sigstore', 'numpy'} & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
