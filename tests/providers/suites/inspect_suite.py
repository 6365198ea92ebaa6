"""Inspect's own checks of sandbox providers, against Caisson."""

import anyio
import inspect_provider
import pytest
from inspect_ai.util._sandbox.self_check import *  # noqa: F403

# Commands run as the one user that a session has.
CANNOT = {"test_exec_as_user": "a session has one user"}

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="module")
def environments():
    opened = anyio.run(inspect_provider.CaissonSandbox.sample_init, "self_check", None, {})
    yield opened
    anyio.run(inspect_provider.CaissonSandbox.sample_cleanup, "self_check", None, opened, False)


@pytest.fixture
def sandbox_env(environments, request):
    if reason := CANNOT.get(request.node.originalname):
        request.node.add_marker(pytest.mark.xfail(reason=reason, strict=True))
    return environments["default"]
