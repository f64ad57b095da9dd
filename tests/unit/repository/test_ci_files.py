"""The files to paste, held against what their hosts publish, and the script that comments."""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import verdict_example as example
import yaml
from commands import captured
from json_schemas import assert_valid
from places import ROOT

from edgeconv.reporting.verdicts import render


@pytest.mark.parametrize(
    ("schema", "file"), [("github-actions", "action.yml"), ("gitlab-ci", "ci/gitlab.yml")]
)
def test_a_file_is_what_its_host_takes(schema, file):
    assert_valid(schema, ROOT / file)


def test_the_templates_fetch_what_is_in_git_lfs(tmp_path):
    (job,) = yaml.safe_load((ROOT / "ci" / "gitlab.yml").read_text(encoding="utf-8")).values()
    assert job["variables"]["GIT_LFS_SKIP_SMUDGE"] == "0"
    assert "with: { lfs: true }" in (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")


def test_no_template_takes_a_module_of_the_checkout():
    for file in (ROOT / "action.yml", *(ROOT / "ci").glob("*.*")):
        text = file.read_text(encoding="utf-8")
        assert not re.findall(r"python3? -[mc]", text), file
    assert "python -I -m pip" in (ROOT / "action.yml").read_text(encoding="utf-8")
    hooks = (ROOT / ".pre-commit-hooks.yaml", *(ROOT / "docs" / "hooks").rglob("*"))
    for file in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *hooks):
        if file.is_file():
            text = file.read_text(encoding="utf-8", errors="replace")
            assert not re.search(r"python3? -m edgeconv\b", text), file


@pytest.mark.parametrize("is_in_git", [False, True])
def test_a_cache_that_is_in_git_is_not_used_in_gitlab(tmp_path, is_in_git):
    (job,) = yaml.safe_load((ROOT / "ci" / "gitlab.yml").read_text(encoding="utf-8")).values()
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    (tmp_path / ".edgeconv-cache").mkdir()
    (tmp_path / ".edgeconv-cache" / "forged").touch()
    if is_in_git:
        subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    done = subprocess.run(["sh", "-e", "-c", job["script"][0]], cwd=tmp_path, check=False)
    assert done.returncode == (2 if is_in_git else 0)


@pytest.mark.parametrize(
    ("listed", "pulls", "calls", "warned"),
    [("model.h5", 0, 2, False), ("model.h5", 1, 2, True), ("", 0, 1, False)],
)
def test_the_action_fetches_what_is_in_git_lfs_where_anything_is(
    tmp_path, listed, pulls, calls, warned
):
    steps = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))["runs"]["steps"]
    (step,) = (step for step in steps if step["name"] == "Git LFS")
    checkout = _checkout(tmp_path / "checkout")
    lfs = tmp_path / "git-lfs"
    lfs.write_text(
        f'#!/bin/sh\necho "lfs $@" >> "{tmp_path}/calls"\n'
        f'if [ "$1" = pull ]; then git config lfs.url >> "{tmp_path}/url"; exit {pulls}; fi\n'
        f'printf "%s" "{listed}"\n'
    )
    lfs.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-e", "-c", step["run"]],
        cwd=checkout,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    asked = (tmp_path / "calls").read_text(encoding="utf-8").splitlines()
    assert asked == ["lfs ls-files --name-only", "lfs pull"][:calls]
    assert ("::warning::" in done.stdout) == warned
    if calls > 1:
        url = (tmp_path / "url").read_text(encoding="utf-8")
        assert url == "https://example.org/base/models.git/info/lfs\n"


def _checkout(folder: Path) -> Path:
    """A checkout of a pull request that names another server."""
    origin = ["remote", "add", "origin", "https://example.org/base/models"]
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    subprocess.run(["git", *origin], cwd=folder, check=True)
    (folder / ".lfsconfig").write_text("[lfs]\n\turl = https://example.net/other\n")
    return folder


def test_pre_commit_takes_the_hook():
    command = ["-m", "pre_commit", "validate-manifest", str(ROOT / ".pre-commit-hooks.yaml")]
    done = captured([sys.executable, *command])
    assert done.returncode == 0, done.stdout


def test_no_script_of_the_action_has_an_expression_in_it():
    """What a pull request can set would be run; it comes as a variable."""
    steps = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))["runs"]["steps"]
    scripts = [step["run"] for step in steps if "run" in step]
    assert len(scripts) == 5
    assert not [script for script in scripts if "${{" in script]


# The comment


@dataclass
class Host:
    """The comments of one pull request, as GitHub's interface gives and takes them."""

    login: str = "github-actions[bot]"
    may_write: bool = True
    comments: list[dict[str, Any]] = field(default_factory=list)

    def has(self, body: str, login: str = "", kind: str = "Bot") -> None:
        user = {"login": login or self.login, "type": kind}
        self.comments.append({"id": 1000 + len(self.comments), "user": user, "body": body})

    def answer(self, method: str, path: str, content: Any) -> tuple[int, Any]:
        url = urlsplit(path)
        if url.path == "/user":
            # As the token of a job is told.
            return 403, {"message": "Resource not accessible by integration"}
        if method == "GET":
            query = {key: int(value[0]) for key, value in parse_qs(url.query).items()}
            start = (query["page"] - 1) * query["per_page"]
            return 200, self.comments[start : start + query["per_page"]]
        if not self.may_write:
            return 403, {"message": "Resource not accessible by integration"}
        if method == "POST" and url.path == "/repos/team/app/issues/7/comments":
            self.has(content["body"])
            return 201, self.comments[-1]
        (comment,) = (c for c in self.comments if url.path.endswith(f"/comments/{c['id']}"))
        comment["body"] = content["body"]
        return 200, comment


@pytest.fixture
def host() -> Iterator[Host]:
    found = Host()

    class Handler(BaseHTTPRequestHandler):
        def _do(self) -> None:
            assert self.headers["Authorization"] == "Bearer secret"
            length = int(self.headers.get("Content-Length") or 0)
            content = json.loads(self.rfile.read(length)) if length else None
            code, answer = found.answer(self.command, self.path, content)
            self.send_response(code)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        do_GET = do_POST = do_PATCH = _do  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    found.url = f"http://127.0.0.1:{server.server_port}"
    yield found
    server.shutdown()
    thread.join()
    server.server_close()


def comment(host: Host, file: Path, **variables: str) -> str:
    """What the script prints."""
    event = file.parent / "event.json"
    event.write_text('{"pull_request": {"number": 7}}')
    done = captured(
        [sys.executable, str(ROOT / "ci" / "github_comment.py"), str(file)],
        cwd=file.parent,
        env={
            **os.environ,
            "GITHUB_API_URL": host.url,
            "GITHUB_EVENT_PATH": str(event),
            "GITHUB_REPOSITORY": "team/app",
            "GITHUB_WORKSPACE": str(file.parent.parent),
            "TOKEN": "secret",
            **variables,
        },
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def written(directory: Path, checked: Any) -> Path:
    file = directory / "comment.md"
    file.write_text(render(checked, "github-comment"), encoding="utf-8")
    return file


def test_the_next_verdict_takes_the_place_of_the_last_one(host, tmp_path):
    host.has("Looks good to me", "someone", "User")
    comment(host, written(tmp_path, example.checked()))
    assert [each["body"].startswith("<!-- edgeconv") for each in host.comments] == [False, True]
    good = example.Checked(config="ci/edgeconv.toml", checks=example.good().checks)
    comment(host, written(tmp_path, good))
    assert len(host.comments) == 2
    assert host.comments[1]["body"] == render(good, "github-comment")


def test_another_configuration_has_a_comment_of_its_own(host, tmp_path):
    comment(host, written(tmp_path, example.checked()))
    comment(host, written(tmp_path, example.good()))
    assert len(host.comments) == 2


def test_the_comment_is_found_behind_hundreds_of_others(host, tmp_path):
    for _ in range(250):
        host.has("well", "someone", "User")
    comment(host, written(tmp_path, example.checked()))
    comment(host, written(tmp_path, example.checked()))
    assert len(host.comments) == 251


def test_a_comment_of_someone_else_with_the_marker_is_left_alone(host, tmp_path):
    file = written(tmp_path, example.checked())
    host.has(file.read_text(encoding="utf-8"), "someone", "User")
    comment(host, file)
    assert len(host.comments) == 2


def test_a_token_that_may_not_write_is_warned_of_and_no_error(host, tmp_path):
    host.may_write = False
    said = comment(host, written(tmp_path, example.checked()))
    assert said.startswith("::warning title=edgeconv check::no comment on the pull request: ")
    assert "403" in said
    assert host.comments == []


def test_a_check_without_a_verdict_replaces_the_verdict_of_an_earlier_run(
    host, tmp_path, monkeypatch
):
    place = tmp_path / "ci"
    place.mkdir()
    (place / "edgeconv.toml").write_text("")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    monkeypatch.chdir(place)
    good = example.Checked(config="edgeconv.toml", checks=example.good().checks)
    file = written(place, good)
    comment(host, file)
    file.unlink()
    comment(host, file, EXIT_CODE="3")
    (found,) = host.comments
    assert found["body"].startswith("<!-- edgeconv check: ci/edgeconv.toml -->\n## ❌")
    assert "exit code 3" in found["body"]


def test_files_are_named_from_the_top_of_the_repository_in_a_job(tmp_path, monkeypatch):
    (tmp_path / "app").mkdir()
    monkeypatch.chdir(tmp_path / "app")
    for variable in ("GITHUB_WORKSPACE", "CI_PROJECT_DIR"):
        monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
        monkeypatch.setenv(variable, str(tmp_path))
        assert "file=app/ci/edgeconv.toml," in render(example.checked(), "github-annotations")
        (first, *_) = json.loads(render(example.checked(), "gitlab-codequality"))
        assert first["location"]["path"] == "app/ci/edgeconv.toml"
        assert '"uri": "app/ci/edgeconv.toml"' in render(example.checked(), "sarif")
    monkeypatch.setenv("CI_PROJECT_DIR", str(tmp_path / "elsewhere"))
    assert "file=ci/edgeconv.toml," in render(example.checked(), "github-annotations")
