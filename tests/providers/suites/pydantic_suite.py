"""Pydantic AI's conformance suite for workspaces, against Caisson."""

import os

import awaiting
import caisson_client
import pydantic_provider
import pytest
from pydantic_ai.workspaces.conformance import WorkspaceBackendSuite


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="module")
def client():
    return caisson_client.Client(os.environ["CAISSON_URL"])


@pytest.fixture(scope="module")
def shared(client):
    with client.open() as session:
        yield session


async def destroy(backend):
    await awaiting.call(caisson_client.Session(backend._client, backend.ref.id).delete)


class TestCaisson(WorkspaceBackendSuite):
    @pytest.fixture
    def backend(self, client, shared):
        return pydantic_provider.CaissonWorkspace(client, pydantic_provider.WorkspaceRef(id=shared.id, provider="caisson"))

    @pytest.fixture
    def fresh_backend(self, client):
        made = []

        def make():
            made.append(pydantic_provider.CaissonWorkspace(client))
            return made[-1]

        yield make
        for backend in made:
            if backend.ref is not None:
                caisson_client.Session(client, backend.ref.id).delete()

    @pytest.fixture
    def attach_backend(self, client):
        return lambda ref: pydantic_provider.CaissonWorkspace(client, ref)

    @pytest.fixture
    def destroy_environment(self):
        return destroy
