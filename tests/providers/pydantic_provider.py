"""Caisson as a workspace of Pydantic AI: commands, and files through the API rather than through a shell."""

import posixpath

import anyio
import awaiting
import caisson_client
from pydantic_ai.workspaces import CommandResult, FileEntry, WorkspaceRef, WorkspaceTimeoutError, WorkspaceUnavailableError
from pydantic_ai.workspaces.protocol import WorkspaceOutputLimitError, validate_timeout

OUTPUT_BYTES = 2 << 20  # of a stream that a session keeps


class CaissonWorkspace:
    def __init__(self, client, ref=None):
        self._client, self._ref = client, ref
        self._session = None
        self._lock = anyio.Lock()

    @property
    def ref(self):
        return self._ref

    async def _opened(self):
        async with self._lock:
            if self._session is None:
                try:
                    if self._ref is not None:
                        self._session = await awaiting.call(self._client.session, self._ref.id)
                    else:
                        with anyio.CancelScope(shield=True):
                            self._session = await awaiting.call(self._client.open)
                            self._ref = WorkspaceRef(id=self._session.id, provider="caisson")
                except caisson_client.SessionGone as error:
                    raise WorkspaceUnavailableError(str(error)) from error
            return self._session

    async def _call(self, name, *arguments):
        session = await self._opened()
        try:
            return await awaiting.call(getattr(session, name), *arguments)
        except caisson_client.SessionGone as error:
            raise WorkspaceUnavailableError(str(error)) from error

    async def working_dir(self):
        await self._opened()
        return caisson_client.WORKSPACE

    async def run(self, command, *, shell=False, env=None, timeout=None):
        if isinstance(command, str) != shell:
            raise TypeError("a line needs shell=True, and a list of words shell=False")
        validate_timeout(timeout)
        session = await self._opened()
        try:
            result = await awaiting.run(session, command, env=env, timeout=timeout)
        except caisson_client.SessionGone as error:
            raise WorkspaceUnavailableError(str(error)) from error
        streams = {"stdout": result.text, "stderr": result.error_text}
        if result.ending == "timeout":
            raise WorkspaceTimeoutError(f"the command took longer than {timeout} s", **streams)
        if result.truncated:
            raise WorkspaceOutputLimitError("the command wrote more than a session keeps", limit=OUTPUT_BYTES, **streams)
        return CommandResult(exit_code=result.exit_code, **streams)

    async def read_bytes(self, path):
        return await self._call("read", path)

    async def write_bytes(self, path, data):
        await self._call("write", path, data)

    async def make_dir(self, path):
        await self._call("make_directory", path)

    async def remove(self, path):
        if posixpath.commonpath([caisson_client.WORKSPACE, path]) == posixpath.normpath(path):
            raise ValueError(f"{path} is the working directory or above it")
        await self._call("remove", path)

    async def stat(self, path):
        return _entry(path, await self._call("stat", path))

    async def list_dir(self, path):
        return [_entry(posixpath.join(path, entry["name"]), entry) for entry in await self._call("list", path)]

    async def exists(self, path):
        try:
            await self._call("stat", path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True


def _entry(path, entry):
    kind = entry.get("target_type") or entry["type"]
    return FileEntry(name=posixpath.basename(path), path=path, is_dir=kind == "directory",
                     size=entry["size"] if entry["type"] == "file" else None)  # fmt: skip
