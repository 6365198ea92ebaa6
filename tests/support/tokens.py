"""Bearer tokens for a service under test."""

import hashlib
import re
import secrets

TOKENS = {name: secrets.token_hex(32) for name in ("course", "reader", "other", "operator", "scraper", "expired")}
RIGHTS = {
    "course": ("course-7", ["submit", "read"]),
    "reader": ("course-7", ["read"]),
    "other": ("course-8", ["submit", "read"]),
    "operator": ("staff", ["submit", "read", "approve", "admin"]),
    "scraper": ("staff", ["metrics"]),
    "expired": ("course-7", ["submit", "read"]),
}


def give_tokens(service, **keys):
    """Writes the tokens' file into a service's directory and configures it, with `keys`, before the service starts."""
    lines = ["version: 1", "tokens:"]
    for name, (tenant, rights) in RIGHTS.items():
        digest = hashlib.sha256(TOKENS[name].encode()).hexdigest()
        lines += [f"  - name: {name}", f"    tenant: {tenant}", f"    rights: [{', '.join(rights)}]",
                  f"    sha256: {digest}"]
        if name == "expired":
            lines.append("    expires: 2020-01-01T00:00:00Z")
    file = service.root / "tokens.yaml"
    file.touch(mode=0o600)
    file.write_text("\n".join(lines) + "\n")
    with open(service.config, "a") as config:
        for key, value in {"tokens": file, **keys}.items():
            config.write(f"{key}: {value}\n")


def port_of(service):
    """The TCP port of a service that was started with `listen: 127.0.0.1:0`."""
    return int(re.search(r'"port":"(\d+)"', service.log.read_text())[1])
