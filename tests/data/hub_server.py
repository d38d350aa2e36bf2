"""A data set hub on this machine: enough of the hub's HTTP interface for `datasets` and `huggingface_hub`.

It is given repositories as {name: {path: bytes}} and answers about them as the real one does; it notes every request.
"""

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

import yaml


class HubServer:
    """Serve repositories while the `with` block lasts.

    Attributes:
        repos: {name: {path: content}}; a change is a new commit.
        gated: names that need a token.
        requests: "METHOD path" of each request so far.
        url: what HF_ENDPOINT must be.
    """

    def __init__(self, repos):
        self.repos, self.gated, self.requests = repos, set(), []

    def __enter__(self):
        hub = self

        class Handler(_Handler):
            server_hub = hub

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()

    def commit(self, name):
        content = [(path, hashlib.sha1(data).hexdigest()) for path, data in sorted(self.repos[name].items())]
        return hashlib.sha1(json.dumps(content).encode()).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_hub: HubServer

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self._answer()

    def do_GET(self):
        self._answer()

    def do_POST(self):
        self._answer()

    def _answer(self):
        hub = self.server_hub
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = unquote(urlsplit(self.path).path)
        hub.requests.append(f"{self.command} {path}")
        parts = path.strip("/").split("/")
        if path == "/":
            return self._send(200, b"hub")
        if parts[:2] == ["api", "datasets"] and len(parts) >= 4:
            return self._api("/".join(parts[2:4]), parts[4:], body)
        if parts[0] == "datasets" and len(parts) > 5 and parts[3] == "resolve":
            return self._resolve("/".join(parts[1:3]), parts[4], "/".join(parts[5:]))
        return self._error(404, "RepoNotFound" if parts[:2] == ["api", "datasets"] else "EntryNotFound")

    def _refused(self, name, revision):
        hub = self.server_hub
        if name not in hub.repos:
            self._error(401, "RepoNotFound")
        elif name in hub.gated:
            self._error(401, "GatedRepo")
        elif revision not in ("main", hub.commit(name)):
            self._error(404, "RevisionNotFound")
        else:
            return False
        return True

    def _api(self, name, rest, body):
        hub = self.server_hub
        what = rest[0] if rest else "revision"
        revision = rest[1] if len(rest) > 1 else "main"
        if name in hub.gated and what == "revision":  # what a gated data set is, is public
            revision = "main"
        elif self._refused(name, revision):
            return None
        files = hub.repos[name]
        if what == "revision":
            found = {"_id": "1", "id": name, "sha": hub.commit(name), "private": False, "gated": False, "tags": []}
            card = files.get("README.md", b"").decode()
            if card.startswith("---"):
                found["cardData"] = yaml.safe_load(card.split("---")[1])
            found["siblings"] = [{"rfilename": path} for path in sorted(files)]
            return self._send(200, json.dumps(found).encode())
        if what == "paths-info":
            found = [entry for path in json.loads(body)["paths"] for entry in self._entries(files, path.strip("/"))]
            return self._send(200, json.dumps(found).encode())
        folder = "/".join(rest[2:])
        start = f"{folder}/" if folder else ""
        below = sorted({start + path[len(start) :].split("/")[0] for path in files if path.startswith(start)})
        if not below:
            return self._error(404, "EntryNotFound")
        return self._send(200, json.dumps([entry for path in below for entry in self._entries(files, path)]).encode())

    def _entries(self, files, path):
        if path in files:
            return [self._file(path, files[path])]
        if any(name.startswith(path + "/") for name in files):
            return [{"type": "directory", "path": path, "oid": "0" * 40, "size": 0}]
        return []

    @staticmethod
    def _file(path, data):
        return {"type": "file", "path": path, "oid": hashlib.sha1(data).hexdigest(), "size": len(data)}

    def _resolve(self, name, revision, path):
        hub = self.server_hub
        if self._refused(name, revision):
            return None
        if path not in hub.repos[name]:
            return self._error(404, "EntryNotFound")
        data = hub.repos[name][path]
        headers = {"ETag": f'"{hashlib.sha1(data).hexdigest()}"', "X-Repo-Commit": hub.commit(name)}
        wanted = self.headers.get("Range")
        if wanted and self.command == "GET":
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            end = min(int(last) if last else len(data) - 1, len(data) - 1)
            headers["Content-Range"] = f"bytes {first}-{end}/{len(data)}"
            return self._send(206, data[int(first) : end + 1], headers)
        return self._send(200, data, {**headers, "Accept-Ranges": "bytes"})

    def _error(self, status, code):
        self._send(status, b"{}", {"X-Error-Code": code, "X-Error-Message": code})

    def _send(self, status, body, headers=None):
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
