"""Each fact that a verdict uses, and the tests in which it is absent, stale, somebody else's, or comes late."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
ENTRY, FOLLOW, KEEPER = "ledger/test_entry", "ledger/test_follow", "ledger/test_keeper"
PROGRESS, SIGNING, VERDICTS = "ledger/test_progress", "ledger/test_signing", "ledger/test_verdicts"
SAME = "reading/test_topic_identity"
BEGUN, OWNERSHIP, SHARED = "transaction/test_begun", "transaction/test_hold", "transaction/test_shared"
SINK, WRITER = "spark/test_sink", "spark/test_micro_batch_writer"

# By fact, as docs/how-it-works.md names it: its test if it is absent, stale, foreign, late.
TESTS = {
    "the entry's record": (
        f"{VERDICTS}::test_a_missing_ledger_is_refused_and_never_guessed",
        f"{ENTRY}::test_of_record_and_pointer_the_later_commit_holds_whichever_was_lost",
        f"{SIGNING}::test_what_is_not_signed_for_this_id_is_refused_and_never_skipped",
        f"{SHARED}::test_a_commit_that_comes_after_a_restart_has_looked_is_found_before_anything_is_written",
    ),
    "the pointer": (
        f"{ENTRY}::test_the_record_holds_where_the_groups_offsets_have_expired",
        f"{ENTRY}::test_pointers_that_were_reset_give_way_to_the_record_however_many_they_are",
        f"{SIGNING}::test_a_pointer_that_somebody_else_commits_does_not_hide_the_record",
        f"{SHARED}::test_the_first_pointer_that_is_still_pending_costs_no_attempt",
    ),
    "where the ledger is": (
        f"{FOLLOW}::test_where_the_entry_is_lost_on_the_way_none_is_made_up",
        f"{ENTRY}::test_where_the_ledger_has_left_it_leads_on_and_where_it_came_back_it_counts",
        f"{VERDICTS}::test_a_source_that_looked_in_another_ledger_topic_is_refused_unless_the_ledger_has_moved",
        f"{KEEPER}::test_each_place_that_the_ledger_left_leads_on_though_its_pointer_expired",
    ),
    "whose ledger the source goes by": (
        f"{VERDICTS}::test_a_first_batch_whose_source_goes_by_this_sink_or_does_not_say_it_is_decided_as_before",
        f"{VERDICTS}::test_a_batch_that_is_in_this_querys_ledger_is_skipped_whatever_its_source_goes_by",
        f"{VERDICTS}::test_a_first_batch_whose_source_goes_by_another_sink_is_refused_whatever_the_ledger_has",
        f"{VERDICTS}::test_a_source_that_goes_by_another_sink_only_after_the_first_batch_is_decided_by_the_ledger",
    ),
    "the entry's form": (
        f"{ENTRY}::test_nothing_anywhere_is_not_an_entry",
        f"{ENTRY}::test_the_format_of_version_1_stays_readable",
        f"{ENTRY}::test_what_is_not_an_entry_is_neither_read_as_one_nor_as_none",
        f"{SHARED}::test_who_comes_back_to_an_entry_of_a_newer_release_writes_nothing",
    ),
    "the query id and batch id": (
        f"{VERDICTS}::test_batches_that_were_never_committed_here_are_refused_as_a_gap",
        f"{VERDICTS}::test_a_ledger_ahead_of_the_checkpoint_is_refused",
        f"{VERDICTS}::test_another_query_under_the_same_transactional_id_is_refused",
        f"{SHARED}::test_a_late_driver_whose_batches_its_successors_committed_does_not_write_the_next_one",
    ),
    "the digest of the plan": (
        f"{SINK}::test_a_plan_of_which_the_source_left_no_note_is_compared_with_the_ledger_as_the_checkpoint_has_it",
        f"{VERDICTS}::test_a_replay_with_other_offsets_is_refused",
        f"{SINK}::test_a_plan_that_was_replaced_before_the_tasks_ran_is_not_committed",
        f"{SINK}::test_a_late_driver_whose_checkpoint_has_a_later_plan_commits_nothing",
    ),
    "the id of the run": (
        f"{VERDICTS}::test_batches_whose_function_is_known_to_have_made_no_call_do_not_stop_the_next_one",
        f"{WRITER}::test_a_query_that_was_started_again_finds_the_batch_written",
        f"{VERDICTS}::test_that_another_run_or_one_that_is_not_known_made_no_call_does_not_count",
        f"{SHARED}::test_a_driver_that_comes_back_late_ends_by_itself_and_the_live_one_does_not_notice",
    ),
    "the calls of the writer": (
        f"{VERDICTS}::test_a_query_whose_first_batches_called_nothing_begins_with_a_later_one",
        f"{BEGUN}::test_a_new_run_of_a_query_knows_nothing_of_the_last_one",
        f"{BEGUN}::test_another_transactional_id_or_cluster_has_its_own_batches_and_what_is_not_known_may_be_any",
        f"{BEGUN}::test_a_call_that_comes_late_fails_for_the_batches_after_those_that_are_written",
    ),
    "the source's offsets": (
        f"{VERDICTS}::test_a_batch_without_a_partition_that_is_committed_is_not_known_to_start_where_the_ledger_ended",
        f"{VERDICTS}::test_a_checkpoint_that_was_left_behind_cannot_set_the_offsets_back",
        f"{SAME}::test_offsets_of_another_cluster_are_refused_before_anything_is_planned",
        f"{SAME}::test_a_batch_planned_before_the_topic_was_created_again_is_not_read_from_the_new_one",
    ),
    "the group's source offsets": (
        f"{VERDICTS}::test_a_lost_checkpoint_whose_groups_offsets_are_gone_is_refused",
        f"{KEEPER}::test_the_group_is_asked_only_if_the_ledger_does_not_know_where_the_sources_ended",
        f"{SHARED}::test_a_new_sink_does_not_resume_at_the_offsets_of_another_sinks_transactions",
        f"{SHARED}::test_nor_are_records_repeated_by_a_query_that_starts_where_an_outdated_coordinator_places_its_group",
    ),
    "`txnVersion` and destination": (
        f"{VERDICTS}::test_of_an_earlier_release_it_is_not_known_where_it_wrote_so_its_versions_are_refused",
        f"{VERDICTS}::test_a_batch_write_is_done_once_per_version",
        f"{VERDICTS}::test_a_batch_write_of_another_application_is_refused",
        f"{SHARED}::test_a_batch_write_that_was_planned_before_another_one_took_the_id_ends_by_itself",
    ),
    "the output topics": (
        f"{SHARED}::test_a_batch_whose_entry_names_no_topic_ids_as_of_an_earlier_release_is_skipped_without_a_look",
        f"{SHARED}::test_a_topic_that_is_created_again_before_the_offsets_are_added_has_the_whole_batch",
        f"{SHARED}::test_a_topic_that_is_created_again_before_the_commit_is_lost_aloud_and_nothing_is_repeated",
        f"{SHARED}::test_a_topic_that_is_deleted_for_good_before_the_commit_is_lost_aloud",
    ),
    "the owner of the transactional id": (
        f"{SHARED}::test_a_run_goes_on_in_another_process_though_it_may_not_describe_the_id",
        f"{SHARED}::test_who_was_fenced_stays_so_in_this_process",
        f"{OWNERSHIP}::test_an_id_is_taken_once_it_has_another_producer_id_or_epoch",
        f"{SHARED}::test_what_a_late_request_opened_and_the_coordinator_aborted_may_be_another_drivers_and_a_restart_goes_on",
    ),
    "the coordinator's and the leader's answers": (
        f"{SHARED}::test_if_the_ledger_cannot_be_read_the_outcome_is_unknown",
        f"{SHARED}::test_what_an_outdated_coordinator_says_of_the_ledger_does_not_make_a_batch_be_committed_twice",
        f"{SHARED}::test_nor_do_an_outdated_coordinator_and_an_outdated_leader_together",
        f"{SHARED}::test_answers_that_do_not_fit_are_no_reason_to_refuse_however_long_the_driver_was_paused_between_them",
    ),
    "the operator's words (`resolve`, `takeOverQuery`)": (
        f"{VERDICTS}::test_a_query_that_lost_its_state_with_the_checkpoint_is_refused_until_the_operator_accepts_that",
        f"{VERDICTS}::test_the_same_word_says_nothing_of_another_commit",
        f"{SHARED}::test_a_group_is_taken_only_from_the_sink_that_is_named",
        f"{SHARED}::test_an_operators_word_settles_one_refusal_and_no_other",
    ),
    "the clock": (
        f"{SHARED}::test_without_a_timeout_whoever_aborts_it_has_taken_over",
        f"{SHARED}::test_what_else_ends_an_attempt_is_not_taken_for_the_timeout_however_long_it_took",
        f"{SHARED}::test_who_is_overtaken_before_its_timeout_is_not_told_that_it_may_have_been_the_coordinator",
        f"{SHARED}::test_a_commit_that_came_after_the_timeout_is_settled_by_the_ledger",
    ),
}


def test_the_table_of_facts_has_those_that_are_tested_and_says_of_each_how_it_is_known_not_to_be_missing():
    page = (ROOT / "docs/how-it-works.md").read_text().partition("## What a verdict uses")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in page.splitlines() if line[:2] == "| "]
    assert [len(row) for row in rows] == [4] * len(rows)
    assert all(all(row) for row in rows)
    assert [row[0] for row in rows[1:]] == list(TESTS)


@pytest.mark.parametrize("fact", TESTS)
def test_each_fact_is_tested_where_it_is_absent_stale_foreign_and_late(fact):
    assert len(set(TESTS[fact])) == len(("absent", "stale", "foreign", "late"))
    for name in TESTS[fact]:
        file, _, function = name.partition("::")
        text = (ROOT / "tests/unit" / f"{file}.py").read_text()
        assert re.search(rf"^def {function}\(", text, re.MULTILINE), name
