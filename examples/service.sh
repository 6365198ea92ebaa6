#!/usr/bin/env bash
# A service from nothing: two people with tokens, a job, an approval, an audit log that proves itself.
# Everything is in a directory that goes at the end. Run it from the project's root, with the programs in PATH.
set -euo pipefail
for program in caisson caissond caisson-launcher openssl python3; do
  command -v "$program" >/dev/null || { echo "service.sh: $program is not in PATH (Caisson's programs: ./dev install)" >&2; exit 1; }
done
here=$(mktemp -d /tmp/caisson-tour-XXXXXX)
trap 'kill %1 2>/dev/null && wait; rm -rf "$here"' EXIT
umask 077

# 1. Who may do what. The file keeps hashes: a token that is lost is replaced, not looked up.
for name in alice bob; do openssl rand -hex 32 >"$here/$name.token"; done
hash() { printf %s "$(cat "$here/$1.token")" | sha256sum | cut -d' ' -f1; }
cat >"$here/tokens.yaml" <<EOF
version: 1
tokens:
  - {name: alice, tenant: course-7, rights: [submit, read], sha256: $(hash alice)}
  - {name: bob, tenant: course-7, rights: [read, approve], sha256: $(hash bob)}
EOF

# 2. The service.
cat >"$here/caissond.yaml" <<EOF
state_dir: $here/state
tokens: $here/tokens.yaml
EOF
caissond --config "$here/caissond.yaml" 2>"$here/log" &
export CAISSON_URL=unix:$here/state/caissond.sock
for turn in $(seq 300); do
  caisson list >/dev/null 2>&1 && break
  if ! kill -0 %1 2>/dev/null || [ "$turn" = 300 ]; then
    echo "service.sh: caissond does not answer:" >&2
    cat "$here/log" >&2
    exit 1
  fi
  sleep 0.1
done
as() { local who=$1; shift; CAISSON_TOKEN=$(cat "$here/$who.token") caisson "$@"; }

# 3. A job. Sent twice with one key it runs once.
job=$(as alice submit --key hand-in-1 examples/hello.py)
[ "$job" = "$(as alice submit --key hand-in-1 examples/hello.py)" ] && echo "one key, one job"
as alice result --wait 60s --json "$job" | python3 -c 'import json, sys; print("hello.py:", json.load(sys.stdin)["status"])'

# 4. A job that policy wants somebody to look at: it installs a package.
cat >"$here/install.json" <<'EOF'
{"source": {"files": {"main.py": "print(1)\n"}},
 "checks": [{"name": "install", "tier": "run", "argv": ["/usr/bin/python3", "-m", "pip", "install", "left-pad"]}]}
EOF
risky=$(as alice submit "$here/install.json")
state() { as alice status --json "$1" | python3 -c 'import json, sys; print(json.load(sys.stdin)["state"])'; }
until [ "$(state "$risky")" = awaiting_approval ]; do sleep 0.1; done
echo "install.json: $(state "$risky")"
approval=$(as bob approvals list --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["approvals"][0]["approval_id"])')
as bob approvals deny "$approval" --reason "not in an exam" >/dev/null
echo "install.json: $(state "$risky")"

# 5. What was decided, by whom, in an order nobody can change unnoticed.
caisson audit verify "$here/state/audit.jsonl" | cut -d' ' -f1,5- | head -1

# 6. The end: what runs may finish.
kill %1
wait %1 && echo "drained"
