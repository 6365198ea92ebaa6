"""The rows about a sandbox's network that need servers outside: names, addresses, first bytes and secrets. The attempts are in the
test files of each part, most of them as root and as a user; this file lists the tests of each row and runs each test once.
The rows G12 to G19 of the selftest are about the same walls.

  egress_rows_test.py [--json FILE]    FILE gets the verdicts in the form of `caisson selftest --json`, for evidence.py
"""

import importlib.util
import json
import os
import platform
import pathlib
import sys
import unittest

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "support"), str(TESTS / "integration"), str(TESTS / "escape")]


def egress(*names):
    return [f"integration/egress_test.py {name}" for name in names]


def sandbox(*names):
    """As root and as a user."""
    return [f"integration/sandbox_network_test.py {name.replace('.', f'As{caller}.')}" for name in names for caller in ("Root", "User")]


def access(*names):
    return [f"integration/network_access_test.py {name.replace('.', f'As{caller}.')}" for name in names for caller in ("Root", "User")]


def walls(name):
    return [f"escape/egress_walls_test.py Walls.test_{name}"]


def clients(*names):
    return [f"integration/egress_clients_test.py {name}" for name in names]


ROWS = {
    "G41 names that are not allowed, asked for outside": walls("G41_names_that_are_not_allowed_are_asked_for_nowhere"),
    "G42 a look-up of an allowed name without a connection": walls("G42_a_look_up_alone_leaves_nothing"),
    "G43 a name server that answers twice": walls("G43_the_address_that_was_checked_is_dialled"),
    "G44 an allowed name that leads to the host's loopback": walls("G44_an_address_that_may_not_be_dialled"),
    "G45 the privileges of the processes that relay": walls("G45_the_relay_and_the_resolver_are_nobody"),
    "G61 a look-up of SECRET.evil.example": walls("G41_names_that_are_not_allowed_are_asked_for_nowhere")
    + ["integration/sandbox_network_test.py Captured.test_denied_names_send_no_packet"]
    + clients("CapturedAsRoot.test_what_is_denied_sends_no_packet", "CapturedAsUser.test_what_is_denied_sends_no_packet"),
    "G62 a name below an exact name": sandbox("Denied.test_names_that_are_not_listed"),
    "G63 many names below a wildcard": egress("DnsTest.test_name_limit_of_a_wildcard"),
    "G64 other record types of an allowed name": egress("DnsTest.test_other_types_and_reverse")
    + sandbox("Denied.test_other_record_types_and_malformed_questions"),
    "G65 malformed questions": egress("DnsTest.test_malformed", "DnsTest.test_over_tcp"),
    "G66 a flood of questions": egress("DnsTest.test_flood") + sandbox("Denied.test_a_thousand_names"),
    "G67 name servers outside, by address": sandbox("Denied.test_addresses_that_no_name_stands_for"),
    "G68 a resolver over HTTPS that is not listed": sandbox("Denied.test_names_that_are_not_listed"),
    "G69 other spellings of an allowed name": sandbox("Allowed.test_names_below_a_wildcard") + egress("DnsTest.test_allowed_and_denied_names"),
    "G70 names that are no names": egress("DnsTest.test_malformed", "DnsTest.test_allowed_and_denied_names"),
    "G71 a homograph": sandbox("Denied.test_names_that_are_not_listed"),
    "G72 a name with other letters in a policy": sandbox("Policy.test_what_is_refused"),
    "G73 what a wildcard means": sandbox("Denied.test_names_that_are_not_listed", "Allowed.test_names_below_a_wildcard"),
    "G74 wildcards that are too wide": sandbox("Policy.test_what_is_refused"),
    "G75 allowed and denied": sandbox("Denied.test_a_deny_rule_beats_a_wildcard"),
    "G76 CONNECT to addresses in every spelling": egress("ProxyTest.test_connect"),
    "G77 CONNECT to IPv6 forms of IPv4": egress("ProxyTest.test_connect"),
    "G78 SOCKS with addresses, datagrams and listeners": egress("ProxyTest.test_socks"),
    "G79 names that lead to private addresses": sandbox("Denied.test_names_that_lead_to_other_addresses") + egress("DialTest.test_bad_addresses"),
    "G80 aliases that lead to private names": egress("DialTest.test_bad_addresses"),
    "G81 answers that change": egress("DialTest.test_one_resolution") + walls("G43_the_address_that_was_checked_is_dialled"),
    "G82 good and bad addresses in one answer": egress("DialTest.test_bad_addresses"),
    "G83 the host's own public address": egress("DialTest.test_own_public_address"),
    "G84 another port of an allowed name": sandbox("Denied.test_another_port_of_an_allowed_name"),
    "G85 TLS for another name": sandbox("Denied.test_tls_for_another_name_or_none") + egress("TlsTest.test_server_name"),
    "G86 a ClientHello in pieces, long, too long": egress("TlsTest.test_fragments"),
    "G87 another protocol at a TLS port": sandbox("Denied.test_tls_for_another_name_or_none"),
    "G88 another Host at a host with a secret": access("Credential.test_the_placeholder_elsewhere"),
    "G89 another Host in a later request": egress("HttpTest.test_second_request_for_another_host") + sandbox("Denied.test_http_for_another_host"),
    "G90 requests that two readers read differently": egress("HttpTest.test_ambiguous_requests"),
    "G91 long and slow heads": egress("HttpTest.test_head_limits"),
    "G92 requests inside bodies": egress("HttpTest.test_request_inside_a_body", "HttpTest.test_connect_is_refused"),
    "G93 half-closed and reset connections": egress("RelayTest.test_half_close", "RelayTest.test_reset_either_way"),
    "G94 many connections that never read": egress("RelayTest.test_many_connections", "RelayTest.test_rates_and_bounds"),
    "G95 other protocols inside TLS": egress("TlsTest.test_other_clients", "HttpTest.test_websocket"),
    # G96, socket families, and G97, unix sockets of the host, are the rows A14, D01, D02 and D06 of the selftest.
    "G98 a workload that listens first": sandbox("Denied.test_a_workload_that_listens_first_harms_itself"),
    "G99 another sandbox's addresses": sandbox("Denied.test_the_pool_of_another_sandbox"),
    "G100 the placeholder elsewhere, and the secret anywhere": access(
        "Credential.test_the_placeholder_elsewhere", "Credential.test_the_secret_is_put_in_and_never_enters",
        "Credential.test_the_memory_of_the_supervisor_and_pid_1_has_no_secret"),
    "G101 a second ClientHello, for another name": egress("TlsTest.test_second_client_hello"),
    "G102 more names at once than the supervisor can answer": sandbox("Denied.test_more_names_at_once_than_a_socket_holds")
    + egress("DnsTest.test_more_listeners_than_the_owner_has_answered"),
    "G103 a name server that never answers": egress("DialTest.test_name_server_that_is_silent")
    + clients("Clients.test_a_name_server_that_does_not_answer"),
    "G104 more names than the pool has addresses": egress("DnsTest.test_pool_exhausted"),
    "G105 connections that send nothing": egress("RelayTest.test_connections_that_send_nothing"),
    "G106 descriptors of the relay and the resolver": egress("ProcessTest.test_walls"),
}

# Row -> what the attempt would do, and the walls that stop it.
NAMES, FRONT, ADDRESSES = "names are answered inside", "the first bytes name the listener's host", "every address of a name is judged"
KINDS = {
    ("exfiltration", NAMES): "G41 G42 G61 G62 G63 G64 G65 G67 G68 G69 G70 G71 G72 G73 G74 G75 G84 G99",
    ("exfiltration", FRONT): "G76 G77 G78 G85 G86 G87 G89 G90 G92 G95 G101",
    ("lateral", ADDRESSES): "G43 G44 G79 G80 G81 G82 G83",
    ("escape", "own user, seccomp, Landlock"): "G45 G106",
    ("host denial of service", "limits of egress"): "G66 G91 G93 G94 G102 G103 G104 G105",
    ("integrity", "listeners at exact addresses"): "G98",
    ("host leak", "secrets are put in outside"): "G88 G100",
}


def document(verdicts):
    kinds = {row: kind for kind, rows in KINDS.items() for row in rows.split()}
    rows = [{"id": row.split()[0], "title": row.split(" ", 1)[1], "severity": kinds[row.split()[0]][0], "walls": [kinds[row.split()[0]][1]],
             "verdict": verdict, "summary": "" if verdict == "PASS" else "see the output of egress_rows_test.py", "attempts": []}
            for row, verdict in verdicts.items()]  # fmt: skip
    return {"kernel": platform.release(), "root": os.geteuid() == 0, "rows": rows}


def load(place):
    file, name = place.split()
    key = pathlib.Path(file).stem
    if key not in sys.modules:
        spec = importlib.util.spec_from_file_location(key, TESTS / file)
        sys.modules[key] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[key])
    return unittest.defaultTestLoader.loadTestsFromName(name, sys.modules[key])


def main():
    # In the order of the files: what a module's tests share lives as long as they follow each other.
    tests = {place: next(iter(load(place))) if isinstance(load(place), unittest.TestSuite) else load(place)
             for place in sorted({place for places in ROWS.values() for place in places})}  # fmt: skip
    result = unittest.TextTestRunner(verbosity=0).run(unittest.TestSuite(tests.values()))
    assert result.testsRun == len(tests), "a test of the table is missing"
    broken = {getattr(test, "test_case", test).id() for test, _ in result.failures + result.errors}
    skipped = {test.id() for test, _ in result.skipped}
    verdicts = {}
    for row, places in ROWS.items():
        ids = {tests[place].id() for place in places}
        verdicts[row] = verdict = "FAIL" if ids & broken else "PASS" if ids - skipped else "SKIP"
        print(f"{row.split()[0]}  {verdict}  {row.split(' ', 1)[1]}", flush=True)
    if sys.argv[1:2] == ["--json"]:
        pathlib.Path(sys.argv[2]).write_text(json.dumps(document(verdicts)))
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
