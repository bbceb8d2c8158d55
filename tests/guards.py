"""Guards against others, each with the code without it and the test that notices. `tests/mutated` runs them all.

As in `tests/mutants.py`, what is replaced occurs exactly once in the module.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.mutants import Mutant

_AUTH = "tests/unit/kafka/auth"
_OAUTH = f"{_AUTH}/test_oauth.py"

GUARDS: Mapping[str, tuple[Mutant, str]] = {
    "A token server's redirect is not followed": (
        Mutant("kafka.auth.oauth", "build_opener(_NoRedirect, ", "build_opener("),
        f"{_OAUTH}::test_a_redirect_is_not_followed_with_the_secret",
    ),
    "Of a token server's answer, only so much is read": (
        Mutant("kafka.auth.oauth", "response.read(_LARGEST_ANSWER)", "response.read()"),
        f"{_OAUTH}::test_an_answer_without_an_end_takes_no_memory",
    ),
    "Of its refusal, too": (
        Mutant("kafka.auth.oauth", "error.read(_LARGEST_ANSWER)", "error.read()"),
        f"{_OAUTH}::test_an_answer_without_an_end_takes_no_memory",
    ),
    "Kerberos logs librdkafka in": (
        Mutant("kafka.auth.security", "(self.token_source, self.kerberos):", "(self.token_source,):"),
        f"{_AUTH}/test_kerberos.py::test_a_keytab_comes_from_jaas_or_from_librdkafkas_names",
    ),
    "SCRAM-SHA-512 has a floor of iterations": (
        Mutant("kafka.auth.authentication", 'name.startswith("SCRAM") and not', 'name == "SCRAM-SHA-256" and not'),
        f"{_AUTH}/test_authentication.py::test_a_broker_that_demands_few_or_very_many_iterations_gets_no_proof",
    ),
    "A connection is replaced before its session ends": (
        Mutant("kafka.protocol.connection", "_SESSION_SHARE = 0.85", "_SESSION_SHARE = 1.5"),
        "tests/unit/kafka/protocol/test_connection.py::test_a_session_is_used_for_less_than_its_lifetime",
    ),
    "A staging file that exists is not written": (
        Mutant("appending.files", " | os.O_EXCL", ""),
        "tests/unit/appending/test_files.py::test_a_file_that_somebody_made_first_is_not_written",
    ),
    "A group is taken from the sink that is named, in the ledger": (
        Mutant("ledger.resolve", "word in words", "any(word[:11] == each[:11] for each in words)"),
        "tests/unit/transaction/test_shared.py::test_a_group_is_taken_only_from_the_sink_that_is_named",
    ),
    "A group is taken from the sink that is named, before the start": (
        Mutant(
            "preflight.checks", 'states(resolve, f"take-group:{others}")', '(resolve or "").startswith("take-group:")'
        ),
        "tests/unit/preflight/test_checks.py",
    ),
    "Two sources of one partition have the progress of the one that is behind": (
        Mutant("ledger.ends", "min(offset, before)", "max(offset, before)"),
        "tests/unit/ledger/test_verdicts.py::test_of_two_sources_with_one_partition_the_one_behind_counts",
    ),
    "The registry is asked for no id that it cannot have": (
        Mutant("registry.client", "_LARGEST_ID = 2**31 - 1", "_LARGEST_ID = 2**32"),
        "tests/unit/registry/test_hostile_records.py::test_an_id_that_no_registry_has_is_not_asked_for",
    ),
    "A URL with a user is refused": (
        Mutant("options.parsers", "if parts.username is not None:", "if parts.password is not None:"),
        "tests/unit/options/test_parsers.py::test_a_url_with_a_user_is_refused_also_without_a_password",
    ),
    "A session's signature is compared whole": (
        Mutant("ledger.signing", "hmac.compare_digest", "(lambda a, b: a[:1] == b[:1])"),
        "tests/unit/ledger/test_signing.py",
    ),
    "Somebody else's folder is not used": (
        Mutant("appending.private_folders", "if status.st_uid not in (user, 0):", "if False:"),
        "tests/unit/appending/test_private_folders.py",
    ),
    "A folder is looked at before it is used": (
        Mutant("appending.staging", "private_folders.look(files.root, Others.NOTHING)", "pass"),
        "tests/unit/appending/test_staging.py::test_somebody_elses_staging_directory_is_refused_and_what_is_in_it_stays",
    ),
    "A trace goes to no file of somebody else": (
        Mutant("observe.trace_file", "if foreign or not", "if not"),
        "tests/unit/observe/test_observers.py::test_a_trace_goes_to_no_folder_and_no_file_of_somebody_else",
    ),
}
