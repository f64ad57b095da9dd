"""The server of the page that runs models in a browser, asked by somebody else."""

import http.client
from collections.abc import Iterator

import pytest

from edgeconv.plugins.devices.web_runner import PageServer


@pytest.fixture
def server(tmp_path, monkeypatch) -> Iterator[PageServer]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "a.js").write_text("1")
    (tmp_path / "secret.txt").write_text("mine")
    one = PageServer(tmp_path / "modules")
    yield one
    one.shutdown()
    one.server_close()


def answer(server: PageServer, path: str, method: str = "GET") -> tuple[int, bytes, str | None]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=60)
    connection.request(method, path, body=b"{}\n" if method == "POST" else None)
    response = connection.getresponse()
    isolated = response.getheader("Cross-Origin-Embedder-Policy")
    said = response.status, response.read(), isolated
    connection.close()
    return said


def test_who_knows_the_secret_gets_an_isolated_page_and_its_files(server):
    status, page, isolated = answer(server, server.secret)
    assert (status, isolated) == (200, "require-corp")
    assert b'src="page.js"' in page
    assert answer(server, server.secret + "package/a.js") == (200, b"1", "require-corp")


@pytest.mark.parametrize("path", ["/", "/next", "/alive", "/page.js", "/x/page.js", "//"])
def test_who_does_not_know_it_gets_nothing(server, path):
    assert answer(server, path)[0] == 404
    server.requests.put(({"task": "open"}, {}))
    assert answer(server, path)[0] == 404
    assert not server.requests.empty()


def test_nobody_else_answers_and_no_other_file_is_given(server):
    assert answer(server, "/answer", "POST")[0] == 404
    assert server.answers.empty()
    for path in ("../../secret.txt", "package/../../../secret.txt", "%2e%2e/%2e%2e/secret.txt"):
        assert answer(server, server.secret + path)[0] == 404
    assert answer(server, server.secret + "package/")[0] == 404
