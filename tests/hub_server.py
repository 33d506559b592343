"""A hub of models on this machine: a real HTTP server that answers what the Hugging Face client asks of the public one."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0123456789abcdef" * 2 + "01234567"


@dataclass
class Hub:
    """What the server holds (repository → path → content), how it refuses, and which files it was asked for, by `owner/name/path`."""

    files: dict[str, dict[str, bytes]]
    gated: set[str] = field(default_factory=set)
    broken: set[str] = field(default_factory=set)
    """Repositories whose large files break off in the middle."""
    asked: list[str] = field(default_factory=list)
    url: str = ""


@contextmanager
def serve(hub: Hub) -> Iterator[Hub]:
    """The hub, answering at `hub.url` while the block runs."""
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *arguments: object) -> None:
        """Says nothing."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        parts = self.path.partition("?")[0].strip("/").split("/")
        if parts[:2] == ["api", "models"] and len(parts) >= 4:
            self._describe("/".join(parts[2:4]), parts[4:])
        elif parts[0] == "storage":
            self._give("/".join(parts[1:3]), "/".join(parts[3:]), {})
        elif len(parts) >= 5 and parts[2] == "resolve":
            self._resolve("/".join(parts[:2]), "/".join(parts[4:]))
        else:
            self._refuse(404, "EntryNotFound", "no such address")

    def _describe(self, repository: str, rest: list[str]) -> None:
        files = self.hub.files.get(repository)
        if files is None:
            # The public hub does not tell a stranger whether a model is absent or private.
            self._refuse(401, "RepoNotFound", "Invalid username or password.")
        elif rest[:1] == ["tree"]:
            self._send_json([_entry(path, content) for path, content in files.items()])
        else:
            gated = "manual" if repository in self.hub.gated else False
            siblings = [{"rfilename": path} for path in files]
            self._send_json({
                "_id": "1", "id": repository, "modelId": repository, "sha": COMMIT, "private": False, "gated": gated,
                "disabled": False, "downloads": 0, "likes": 0, "tags": [], "siblings": siblings,
            })  # fmt: skip

    def _resolve(self, repository: str, path: str) -> None:
        if repository in self.hub.gated:
            self._refuse(403, "GatedRepo", f"Access to model {repository} is restricted.")
            return
        content = self.hub.files.get(repository, {}).get(path)
        if content is None:
            self._refuse(404, "EntryNotFound", "Entry not found")
            return
        if not path.endswith(".safetensors"):
            self._give(repository, path, {"ETag": f'"{_blob(content)}"', "X-Repo-Commit": COMMIT})
            return
        # Large files lie on another host, which the answer names together with what the file will be.
        self.send_response(302)
        for name, value in {
            "Location": f"{self.hub.url.replace('127.0.0.1', 'localhost')}/storage/{repository}/{path}",
            "X-Repo-Commit": COMMIT,
            "X-Linked-Size": str(len(content)),
            "X-Linked-ETag": f'"{hashlib.sha256(content).hexdigest()}"',
            "Content-Length": "0",
        }.items():
            self.send_header(name, value)
        self.end_headers()

    def _give(self, repository: str, path: str, headers: dict[str, str]) -> None:
        content = self.hub.files[repository][path]
        num_sent = len(content) // 2 if repository in self.hub.broken and path.endswith(".safetensors") else len(content)
        if self.command == "GET":
            self.hub.asked.append(f"{repository}/{path}")
        self._send(content, headers, num_sent)

    def _send(self, content: bytes, headers: dict[str, str], num_sent: int) -> None:
        self.send_response(200)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content[:num_sent])
            self.close_connection = num_sent < len(content)

    def _send_json(self, document: object) -> None:
        body = json.dumps(document).encode()
        self._send(body, {"Content-Type": "application/json"}, len(body))

    def _refuse(self, status: int, code: str, message: str) -> None:
        body = json.dumps({"error": message}).encode()
        self.send_response(status)
        for name, value in {"X-Error-Code": code, "X-Error-Message": message, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


def _entry(path: str, content: bytes) -> dict[str, object]:
    entry: dict[str, object] = {"type": "file", "path": path, "size": len(content), "oid": _blob(content)}
    if path.endswith(".safetensors"):
        entry["lfs"] = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}
    return entry


def _blob(content: bytes) -> str:
    """What git calls a file of this content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
