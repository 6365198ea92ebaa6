"""The systemd unit: rated as documented, and without options that would blind the sandboxes it starts."""

import pathlib
import re
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support import caisson  # noqa: E402

UNIT = caisson.REPOSITORY / "docs/operator/examples/caissond.service"
# systemd makes system-call filters of these. A sandbox inherits them, and their refusal wins over our observation.
FILTERS = re.compile(r"^(SystemCall\w+|RestrictAddressFamilies|RestrictNamespaces|RestrictRealtime|RestrictSUIDSGID|LockPersonality|"
                     r"MemoryDenyWriteExecute|ProtectClock|ProtectHostname|ProtectKernel\w+|PrivateDevices)=", re.M)


class UnitFile(unittest.TestCase):
    def test_it_starts_sandboxes_without_filters_of_its_own(self):
        self.assertIsNone(FILTERS.search(UNIT.read_text()))

    def test_it_is_rated_as_the_document_says(self):
        if shutil.which("systemd-analyze") is None:
            caisson.skip("systemd", "systemd-analyze is not installed")
        rated = subprocess.run(["systemd-analyze", "security", "--offline=true", UNIT], capture_output=True, text=True).stdout
        score = re.search(r"exposure level for caissond.service: ([0-9.]+)", rated)[1]
        self.assertIn(f"exposure {score}", (caisson.REPOSITORY / "docs/operator/service.md").read_text())


if __name__ == "__main__":
    unittest.main()
