"""Caisson as a sandbox of Inspect (inspect_ai): a session for each sample."""

import os

import awaiting
import caisson_client
from inspect_ai.util import ExecResult, OutputLimitExceededError, SandboxEnvironment, SandboxEnvironmentLimits, sandboxenv
from inspect_ai.util._sandbox.environment import SandboxUnavailableError, SandboxUserUnsupportedError


@sandboxenv(name="caisson")
class CaissonSandbox(SandboxEnvironment):
    def __init__(self, session):
        super().__init__()
        self.session = session

    @classmethod
    async def sample_init(cls, task_name, config, metadata):
        client = caisson_client.Client(os.environ["CAISSON_URL"], os.environ.get("CAISSON_TOKEN"))
        return {"default": cls(await awaiting.call(client.open))}

    @classmethod
    async def sample_cleanup(cls, task_name, config, environments, interrupted):
        for environment in environments.values():
            await awaiting.call(environment.session.delete)

    async def exec(self, cmd, input=None, cwd=None, env=None, user=None, timeout=None, timeout_retry=True, concurrency=True):
        try:
            result = await awaiting.run(self.session, cmd, input=input, cwd=cwd, env=env, user=user, timeout=timeout)
        except caisson_client.SessionGone as error:
            raise SandboxUnavailableError(str(error)) from error
        except caisson_client.ApiError as error:
            if error.field == "user":
                raise SandboxUserUnsupportedError(error.detail) from error
            raise
        if result.ending == "timeout":
            raise TimeoutError(f"the command took longer than {timeout} s")
        if result.ending == "not_executable" and result.exit_code == 126:
            raise PermissionError(f"{cmd[0]} cannot be executed")
        limit = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
        if result.truncated or max(len(result.stdout), len(result.stderr)) > limit:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR, result.text[-limit:])
        return ExecResult(result.exit_code == 0, result.exit_code, result.text, result.error_text)

    async def write_file(self, file, contents):
        await awaiting.call(self.session.write, file, contents)

    async def read_file(self, file, text=True):
        try:
            data = await awaiting.call(self.session.read, file, SandboxEnvironmentLimits.MAX_READ_FILE_SIZE)
        except OverflowError as error:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None) from error
        return data.decode() if text else data
