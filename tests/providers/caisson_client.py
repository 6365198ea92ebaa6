"""A client of Caisson's sessions over HTTP, with the standard library alone.

    client = Client("unix:/run/caissond/caissond.sock")          # or http://127.0.0.1:8080, with a token
    with client.open(files={"main.py": "print(6 * 7)"}) as session:
        result = session.run(["python3", "main.py"], timeout=10)
        result.exit_code, result.stdout, result.truncated
        session.write("data.bin", b"\\0\\1")
        session.read("data.bin")

A program that fails is a result, never an exception. Errors about paths are the built-in ones of Python (FileNotFoundError,
IsADirectoryError, PermissionError, …); a session that is gone raises SessionGone. An object may be used by several threads.
"""

import base64
import dataclasses
import errno
import http.client
import json
import os
import posixpath
import socket
import time
import urllib.parse

WORKSPACE = "/workspace"
# Commands are awaited in pieces, so that a connection that breaks costs little.
WAIT_SECONDS = 60
INPUT_PIECE = 4 << 20
INLINE_INPUT = 1 << 20


class ApiError(Exception):
    """The service refused a request: `status`, `detail`, `field` and `errno` as its answer has them."""

    def __init__(self, status, problem):
        self.status = status
        self.detail = problem.get("detail", "")
        self.field = problem.get("field", "")
        self.errno = problem.get("errno", "")
        super().__init__(f"{status}: {self.detail}")


class SessionGone(ApiError):
    """The session was deleted, stopped or lost."""


class Unreachable(Exception):
    """The service does not answer."""


@dataclasses.dataclass(frozen=True)
class Result:
    """How a command ended. `ending` is "exited", "signaled", "timeout", "output_limit", "not_executable", …"""

    exit_code: int
    ending: str
    stdout: bytes
    stderr: bytes
    truncated: bool
    document: dict

    @property
    def text(self):
        return self.stdout.decode(errors="replace")

    @property
    def error_text(self):
        return self.stderr.decode(errors="replace")


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Client:
    def __init__(self, url, token=None, timeout=120):
        self.url, self.timeout = url, timeout
        self.headers = {"Host": "localhost"} if url.startswith("unix:") else {}
        if token:
            self.headers["Authorization"] = f"Bearer {token}"

    def connect(self):
        if self.url.startswith("unix:"):
            return _UnixConnection(self.url[len("unix:"):], self.timeout)
        parts = urllib.parse.urlsplit(self.url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        return kind(parts.hostname, parts.port, timeout=self.timeout)

    def send(self, method, path, body=None, headers=None):
        """(status, headers, bytes) of one request."""
        connection = self.connect()
        try:
            connection.request(method, path, body, {**self.headers, **(headers or {})})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(f"{self.url}: {error}") from error
        finally:
            connection.close()

    def call(self, method, path, document=None, headers=None):
        """The JSON document that answers one request."""
        body = None if document is None else json.dumps(document).encode()
        headers = {**(headers or {}), **({"Content-Type": "application/json"} if body is not None else {})}
        status, _, content = self.send(method, path, body, headers)
        if status >= 400:
            raise problem_of(status, content)
        return json.loads(content) if content else None

    def open(self, idempotency_key=None, **request):
        headers = {"Idempotency-Key": idempotency_key} if idempotency_key else {}
        return Session(self, self.call("POST", "/v1/sessions", request, headers)["id"])

    def session(self, identifier):
        """One that was opened before; SessionGone unless it lives."""
        session = Session(self, identifier)
        session.check()
        return session


def problem_of(status, content):
    try:
        problem = json.loads(content)
    except ValueError:
        problem = {}
    return ApiError(status, problem if isinstance(problem, dict) else {})


def _inside(path):
    """The absolute path; relative ones are below the workspace."""
    return "/" + posixpath.normpath(posixpath.join(WORKSPACE, path)).lstrip("/")


class Session:
    def __init__(self, client, identifier):
        self.client, self.id = client, identifier
        self._place = f"/v1/sessions/{identifier}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.delete()

    # --- the session

    def show(self):
        return self.client.call("GET", self._place)

    def check(self):
        """SessionGone unless it lives."""
        try:
            state = self.show()["state"]
        except ApiError as error:
            raise self._gone(error) from error
        if state not in ("opening", "running", "idle"):
            raise SessionGone(409, {"detail": f"the session {self.id} is {state}"})

    def stop(self):
        return self.client.call("POST", f"{self._place}:stop")

    def delete(self):
        try:
            self.client.call("DELETE", self._place)
        except ApiError as error:
            if error.status != 404:
                raise

    def fork(self, **request):
        return Session(self.client, self.client.call("POST", f"{self._place}:fork", request)["id"])

    def diff(self):
        return self.client.call("GET", f"{self._place}/diff")

    def _gone(self, error):
        """An error about the session itself as SessionGone; any other as it is."""
        if error.errno:
            return error
        if error.status == 404 or (error.status == 409 and self.id in error.detail):
            return SessionGone(error.status, {"detail": error.detail})
        return error

    # --- commands

    def start(self, command, cwd=None, env=None, input=None, timeout=None, user=None):
        """Starts a command and returns its number. `command` is a list of words, or a line for sh."""
        body = {"command": command} if isinstance(command, str) else {"argv": list(command)}
        if cwd is not None:
            body["cwd"] = _inside(cwd)
        if env:
            body["env"] = dict(env)
        if timeout is not None:
            body["timeout_ms"] = max(1, int(timeout * 1000))
        if user is not None:
            body["user"] = user
        if isinstance(input, str):
            input = input.encode()
        large = input is not None and len(input) > INLINE_INPUT
        if large:
            body["stdin_open"] = True
        elif input is not None:
            body["stdin"] = {"base64": base64.b64encode(input).decode()}
        try:
            number = self.client.call("POST", f"{self._place}/exec", body)["exec"]
        except ApiError as error:
            raise self._gone(error) from error
        if large:
            self._feed(number, input)
        return number

    def _feed(self, number, data):
        """Sends input as fast as the command takes it."""
        for at in range(0, len(data), INPUT_PIECE):
            end = at + INPUT_PIECE >= len(data)
            while True:
                status, _, content = self.client.send("POST", f"{self._place}/exec/{number}/stdin?eof={int(end)}",
                                                      data[at : at + INPUT_PIECE], {"Content-Type": "application/octet-stream"})
                if status != 429:
                    break
                time.sleep(0.05)
            if status == 409:
                return  # it ended without reading everything
            if status >= 400:
                raise problem_of(status, content)

    def wait(self, number, seconds=None):
        """The command's Result; None when it still runs after `seconds`."""
        until = None if seconds is None else time.monotonic() + seconds
        while True:
            patience = WAIT_SECONDS if until is None else min(WAIT_SECONDS, max(0.0, until - time.monotonic()))
            try:
                document = self.client.call("GET", f"{self._place}/exec/{number}?wait={patience:.3f}")
            except ApiError as error:
                raise self._gone(error) from error
            if document["state"] != "running":
                return self._result(document)
            if until is not None and time.monotonic() >= until:
                return None

    def _result(self, document):
        # A command of this API ends so only with its session, whose own record may be written a moment later.
        if document["ending"] in ("lost", "cancelled"):
            raise SessionGone(409, {"detail": f"the session {self.id} ended while command {document['exec']} ran"})
        stream = {}
        for name in ("stdout", "stderr"):
            encoded = document.get(f"{name}_base64")
            stream[name] = base64.b64decode(encoded) if encoded is not None else document[name].encode()
        return Result(document["exit_code"], document["ending"], stream["stdout"], stream["stderr"], document["truncated"], document)

    def signal(self, number, name):
        self.client.call("POST", f"{self._place}/exec/{number}:signal", {"signal": name})

    def run(self, command, **options):
        return self.wait(self.start(command, **options))

    # --- files

    def _file(self, path):
        return f"{self._place}/files/{urllib.parse.quote(_inside(path), safe='/')}"

    def _raise(self, status, content, path):
        error = problem_of(status, content)
        gone = self._gone(error)
        if isinstance(gone, SessionGone):
            raise gone
        number = getattr(errno, error.errno, 0) if error.errno else {403: errno.EACCES, 422: errno.EINVAL}.get(status, 0)
        if not number and status == 409:
            number = errno.EINVAL  # neither a file nor a directory
        if number:
            raise OSError(number, f"{os.strerror(number)} ({error.detail})", path)
        raise error

    def read(self, path, most_bytes=None):
        """The bytes of a file. With `most_bytes`, OverflowError for a larger one, which is not transferred."""
        headers = {"Range": f"bytes=0-{most_bytes}"} if most_bytes is not None else {}
        status, _, content = self.client.send("GET", self._file(path), headers=headers)
        if status == 416:
            return b""
        if status >= 400:
            self._raise(status, content, path)
        if most_bytes is not None and len(content) > most_bytes:
            raise OverflowError(f"{path} is larger than {most_bytes} bytes")
        return content

    def write(self, path, data, mode=None):
        """Writes a file; makes the directories above it."""
        data = data.encode() if isinstance(data, str) else bytes(data)
        query = f"?mode={mode:o}" if mode is not None else ""
        status, _, content = self.client.send("PUT", self._file(path) + query, data)
        if status >= 400:
            self._raise(status, content, path)

    def make_directory(self, path):
        status, _, content = self.client.send("PUT", self._file(path) + "?type=directory", b"")
        if status >= 400:
            self._raise(status, content, path)

    def remove(self, path):
        status, _, content = self.client.send("DELETE", self._file(path))
        if status >= 400:
            self._raise(status, content, path)

    def _query(self, name, path):
        status, _, content = self.client.send("GET", f"{self._place}/files?{name}={urllib.parse.quote(_inside(path), safe='')}")
        if status >= 400:
            self._raise(status, content, path)
        return json.loads(content)

    def stat(self, path):
        """name, type, mode, size, …; of a link, also link_target and target_type."""
        return self._query("stat", path)

    def list(self, path):
        return self._query("list", path)["entries"]

    def get_archive(self, path=WORKSPACE):
        """A tar file of what is at `path`."""
        status, _, content = self.client.send("GET", f"{self._place}/archive?path={urllib.parse.quote(path, safe='')}")
        if status >= 400:
            self._raise(status, content, path)
        return content

    def put_archive(self, data, path=WORKSPACE):
        status, _, content = self.client.send("PUT", f"{self._place}/archive?path={urllib.parse.quote(path, safe='')}", data)
        if status >= 400:
            self._raise(status, content, path)
        return json.loads(content)
