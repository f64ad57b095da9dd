"""Put a comment on the pull request of a GitHub job, in place of the one that it made before.

Usage: github_comment.py FILE, as `edgeconv check --output github-comment=FILE` writes it. Its
first line marks the comment. Where there is no FILE, the check could not be made, and the comment
says that instead of what an earlier run found. Needs the standard library only.

From the environment: TOKEN; CONFIG and EXIT_CODE of the check; and what GitHub sets in every job.
"""

import json
import os
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

_PER_PAGE = 100
_MOST_PAGES = 30


def main(file: Path) -> None:
    """Make or change the comment. Where the token may not, warn: the check is what counts."""
    event = json.loads(Path(os.environ["GITHUB_EVENT_PATH"]).read_text(encoding="utf-8"))
    issue = f"/repos/{os.environ['GITHUB_REPOSITORY']}/issues"
    comments = f"{issue}/{event['pull_request']['number']}/comments"
    body = file.read_text(encoding="utf-8") if file.exists() else _not_made()
    try:
        old = _before(comments, body.split("\n", 1)[0])
        if old is None:
            _request("POST", comments, {"body": body})
        else:
            _request("PATCH", f"{issue}/comments/{old}", {"body": body})
    except (urllib.error.URLError, TimeoutError) as error:
        print(f"::warning title=edgeconv check::no comment on the pull request: {error}")


def _before(comments: str, marker: str) -> int | None:
    """The comment that starts with the marker and is this token's own, None where there is none.

    Whoever else writes the marker into a comment does not get it overwritten.
    """
    own = _login()
    for page in range(1, _MOST_PAGES + 1):
        found = _request("GET", f"{comments}?per_page={_PER_PAGE}&page={page}")
        for comment in found:
            user = comment["user"] or {}
            is_own = user.get("login") == own if own else user.get("type") == "Bot"
            if is_own and comment["body"].split("\n", 1)[0].rstrip() == marker:
                return int(comment["id"])
        if len(found) < _PER_PAGE:
            break
    return None


def _login() -> str:
    """Who the token belongs to; "" for the token of a job, which may not ask."""
    try:
        return str(_request("GET", "/user")["login"])
    except urllib.error.HTTPError:
        return ""


def _request(method: str, path: str, content: dict[str, str] | None = None) -> Any:
    request = urllib.request.Request(
        os.environ["GITHUB_API_URL"] + path,
        method=method,
        data=None if content is None else json.dumps(content).encode(),
        headers={
            "Authorization": f"Bearer {os.environ['TOKEN']}",
            "Accept": "application/vnd.github+json",
            "Content-Type": "application/json",
        },
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def _not_made() -> str:
    """What to say where the check ended without a verdict."""
    config = os.environ.get("CONFIG") or next(
        (name for name in ("edgeconv.toml", "pyproject.toml") if Path(name).exists()),
        "edgeconv.toml",
    )
    file = os.path.relpath(config, os.environ["GITHUB_WORKSPACE"])
    code = os.environ.get("EXIT_CODE", "")
    return (
        f"<!-- edgeconv check: {urllib.parse.quote(file, safe='/')} -->\n"
        "## ❌ edgeconv check: no verdict\n\n"
        f"The check ended with exit code {code} before it could judge; the log says why.\n"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
