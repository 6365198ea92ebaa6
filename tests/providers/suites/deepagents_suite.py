"""The standard tests of LangChain for sandboxes, against Caisson."""

import os

import caisson_client
import deepagents_provider
import pytest
from langchain_tests.integration_tests.sandboxes import SandboxIntegrationTests


class TestCaisson(SandboxIntegrationTests):
    @pytest.fixture(scope="class")
    def sandbox(self):
        # The suite calls python; Debian's own name is python3.
        path = {"PATH": "/tmp/bin:/usr/local/bin:/usr/bin:/bin"}
        with caisson_client.Client(os.environ["CAISSON_URL"]).open(env=path) as session:
            session.run(["sh", "-c", "mkdir /tmp/bin && ln -s /usr/bin/python3 /tmp/bin/python"])
            yield deepagents_provider.CaissonSandbox(session)
