"""The table of upgrade and rollback in docs/migrating.md: each row is a test that runs the older releases."""

from __future__ import annotations

from tests.pages import ROOT

_BROKER, _SPARK = "tests/broker/test_rollback.py", "tests/spark/test_rollback.py"
TESTS = {
    "upgrade, and the batch that was committed last runs again": (
        _BROKER, "test_after_an_upgrade_a_committed_batch_is_skipped_and_the_next_one_goes_on"),
    "upgrade, and the next batch": (
        _BROKER, "test_after_an_upgrade_a_committed_batch_is_skipped_and_the_next_one_goes_on"),
    "upgrade, with a new checkpoint that starts at the committed offsets": (
        _BROKER, "test_after_an_upgrade_a_lost_checkpoint_is_continued_from"),
    "upgrade, and a batch write with a higher `txnVersion`": (
        _BROKER, "test_a_batch_write_goes_on_after_an_upgrade_and_is_refused_after_a_rollback"),
    "upgrade, and a replay of dead letters": (
        _BROKER, "test_a_replay_of_dead_letters_goes_on_after_an_upgrade_and_is_refused_after_a_rollback"),
    "rollback after any commit, with one output topic or several, or a `ledgerTopic` of its own": (
        _BROKER, "test_after_a_rollback_the_older_release_refuses_and_this_one_goes_on",
        "test_after_a_rollback_with_a_ledger_topic_of_its_own_the_older_release_refuses"),
    "the same after the ledger's group has expired": (
        _BROKER, "test_the_older_release_refuses_by_the_record_where_the_pointer_has_expired"),
    "the same of a batch write or a replay of dead letters": (
        _BROKER, "test_a_batch_write_goes_on_after_an_upgrade_and_is_refused_after_a_rollback",
        "test_a_replay_of_dead_letters_goes_on_after_an_upgrade_and_is_refused_after_a_rollback"),
    "the newer release again, after such a refusal": (
        _BROKER, "test_a_rollback_that_was_refused_leaves_nothing_behind"),
    "rollback of a query that the newer release began": (
        _BROKER, "test_the_older_release_refuses_a_query_that_this_one_began",
        "test_0_1_finds_nothing_of_a_query_that_this_release_began_and_refuses_all_but_its_first_batch"),
    "the older release's source, or the built-in one, on offsets of this release": (
        _SPARK, "test_an_older_release_goes_on_from_offsets_that_say_which_records_they_mean",
        "test_the_built_in_source_goes_on_from_offsets_that_say_which_records_they_mean"),
}  # fmt: skip


def test_each_row_is_a_test_and_each_test_exists() -> None:
    section = (
        (ROOT / "docs" / "migrating.md").read_text().partition("#### Upgrade and rollback\n")[2].partition("\n## ")[0]
    )
    rows = [line.split("|")[1].strip() for line in section.splitlines() if line.startswith("| ")]
    assert rows[1:] == [*TESTS], rows
    for file, *names in TESTS.values():
        text = (ROOT / file).read_text()
        for name in names:
            assert f"def {name}(" in text
