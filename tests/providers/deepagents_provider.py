"""Caisson as a sandbox of LangChain's deepagents."""

import caisson_client
from deepagents.backends.protocol import ExecuteResponse, FileDownloadResponse, FileUploadResponse
from deepagents.backends.sandbox import BaseSandbox


def _code_of(error):
    """The word for an error that deepagents knows."""
    kinds = ((FileNotFoundError, "file_not_found"), (PermissionError, "permission_denied"), (IsADirectoryError, "is_directory"),
             (NotADirectoryError, "invalid_path"))  # fmt: skip
    return next((word for kind, word in kinds if isinstance(error, kind)), "invalid_path")


class CaissonSandbox(BaseSandbox):
    def __init__(self, session: caisson_client.Session):
        self.session = session

    @property
    def id(self):
        return self.session.id

    def execute(self, command, *, timeout=None):
        # Both streams as one, in the order in which they were written.
        result = self.session.run(["/bin/sh", "-c", f"exec 2>&1\n{command}"], timeout=timeout)
        return ExecuteResponse(output=result.text, exit_code=result.exit_code, truncated=result.truncated)

    def upload_files(self, files):
        return [self._upload(path, content) for path, content in files]

    def download_files(self, paths):
        return [self._download(path) for path in paths]

    def _upload(self, path, content):
        if not path.startswith("/"):
            return FileUploadResponse(path=path, error="invalid_path")
        try:
            self.session.write(path, content)
        except OSError as error:
            return FileUploadResponse(path=path, error=_code_of(error))
        return FileUploadResponse(path=path, error=None)

    def _download(self, path):
        if not path.startswith("/"):
            return FileDownloadResponse(path=path, content=None, error="invalid_path")
        try:
            return FileDownloadResponse(path=path, content=self.session.read(path), error=None)
        except OSError as error:
            return FileDownloadResponse(path=path, content=None, error=_code_of(error))
