#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""The namespace tests of the gate (.ci/run): a few of each way that a connection can go, and none whose outcome depends
on how soon a process is scheduled.

    gate.py            the ways, and how many tests each has
    gate.py WAY        runs these, and says how long each took

Agents have long timeouts here: the tests check what they do, not whether they do it within a second. Tests about times
are in netns.*. A test that fails without a fault behind it goes from
this list into docs/testing.md, with its reason.
"""
import sys
import time
import unittest

from base import TIME_ENOUGH
from lab.nodes import Lab, Node

WAYS = {
    "ask": [
        "steering_test.Steering.test_addresses_are_those_of_plain_tcp",
        "steering_test.Steering.test_a_listener_older_than_the_agent_is_served",
        "steering_test.Steering.test_nobody_listens",
        "steering_test.Steering.test_a_server_with_three_devices_on_top_of_each_other_hears_one_syn",
        "steering_test.Steering.test_a_syn_is_judged_by_its_first_device_alone",
        "steering_test.Steering.test_a_listener_beside_the_agents_own_gets_nothing",
        "steering_test.Steering.test_a_static_binary",
        "steering_test.Steering.test_clsact_where_there_is_no_tcx",
        "steering_test.Steering.test_maps_can_be_read_by_a_person",
        "addresses_test.Addresses.test_both_ends_and_ss_agree",
        "addresses_test.Addresses.test_both_ends_and_ss_agree_on_ipv6",
    ],
    "hold": [
        "fallback_test.Fallback.test_a_capable_server_is_asked_once_and_remembered",
        "fallback_test.Fallback.test_the_memory_of_servers_is_bounded",
        "fallback_test.Fallback.test_a_syn_is_kept_while_the_agents_talk",
        "fallback_test.Fallback.test_a_client_that_goes_on_while_its_agent_hangs",
        "fallback_test.Fallback.test_an_agent_that_is_killed_while_the_agents_talk",
        "fallback_test.Fallback.test_a_dial_from_a_listeners_port_that_is_given_up",
        "fallback_test.Fallback.test_a_listener_that_closes_while_the_agents_talk",
    ],
    "leg": [
        "moves_test.Moves.test_a_connection_goes_on",
        "port_again_test.PortAgain",
        "legs_test.Legs.test_legs_are_not_paced",
        "legs_test.Legs.test_what_the_application_chose_stays",
        "legs_test.Legs.test_a_socket_that_is_used_again_for_tcp_has_its_congestion_control_back",
        "legs_test.Legs.test_beside_a_tracer_with_every_socket_in_a_map",
        "order_test.Order.test_what_is_sent_first_can_be_read_first",
        "legs_test.Legs.test_hairpins_go_with_their_leg_and_no_sooner",
        "legs_test.Legs.test_a_socket_that_is_used_again_leaves_its_hairpin",
        "loss_test.Loss.test_a_reset_that_finds_no_neighbour_is_made_up_for",
        "loss_test.Loss.test_a_reader_that_is_late_for_a_client_that_has_gone",
        "loss_test.Loss.test_a_writer_that_was_the_last_process_of_its_namespace",
        "loss_test.Loss.test_a_rule_that_does_not_select_an_application_any_more",
        "loss_test.Loss.test_a_writer_that_comes_back_after_its_peer_has_gone",
        "loss_test.Loss.test_keepalive_of_an_application_holds_on_the_wire",
        "loss_test.Loss.test_keepalive_follows_an_application_that_changes_its_mind",
    ],
    "fall_back": [
        "fallback_test.Fallback.test_a_server_without_smc_is_asked_and_answers_plain_tcp",
        "fallback_test.Fallback.test_a_peer_that_echoes_unknown_options_through_a_bridge",
        "fallback_test.Fallback.test_decline_without_a_common_eid",
        "fallback_test.Fallback.test_decline_on_another_fabric",
        "fallback_test.Fallback.test_seid_alone_is_enough",
        "middlebox_test.Middlebox.test_answers_without_the_option",
        "middlebox_test.Middlebox.test_requests_without_the_option",
    ],
    "kill": [
        "lifecycle_test.Lifecycle.test_sigterm_leaves_nothing_behind",
        "lifecycle_test.Lifecycle.test_killed_client_agent_ends_connections_with_an_error",
        "lifecycle_test.Lifecycle.test_killed_server_agent_ends_connections_with_an_error",
        "lifecycle_test.Lifecycle.test_plain_connections_outlive_the_agent",
        "lifecycle_test.Lifecycle.test_a_restarted_peer_is_a_first_contact_again",
        "lifecycle_test.Lifecycle.test_an_agent_in_a_time_namespace",
        "lifecycle_test.Lifecycle.test_signals_that_say_nothing_to_it",
        "lifecycle_test.Lifecycle.test_a_log_that_nobody_reads",
        "lifecycle_test.Lifecycle.test_pins_are_one_agents_whatever_its_control_socket_is",
    ],
    "upgrade": [
        "upgrade_test.Tcx.test_connections_stay_and_new_ones_have_the_next_agent",
        "upgrade_test.Tcx.test_who_cannot_serve_takes_nobodys_place",
        "upgrade_test.Drain.test_a_stop_waits_for_connections",
    ],
    "refuse": [
        "refused_test.Refused.test_programs_of_user_space_run_as_sched_cls",
        "refused_test.Refused.test_no_program_may_read_the_kernels_memory",
        "refused_test.Refused.test_the_bypass_alone_is_lost",
        "refused_test.Refused.test_nothing_works_without_sk_lookup",
    ],
    "policy": [
        "steering_test.Steering.test_rules_decide_in_order",
        "steering_test.Steering.test_inbound_rules",
        "limits_test.Limits.test_queueing_disciplines",
        "limits_test.Limits.test_a_rule_may_go_past_them",
        "rules_test.Rules.test_a_cgroup_that_may_not_connect",
        "rules_test.Rules.test_a_user_who_may_not_connect",
        "rules_test.Rules.test_firewalls_that_let_nothing_else_pass",
        "rules_test.Rules.test_a_client_with_a_translated_port_goes_on_behind_the_servers_end",
        "server_leg_test.ServerLeg.test_a_proxy_takes_connections_that_begin_at_the_server",
        "server_leg_test.ServerLeg.test_only_one_client_without_an_agent_is_reset",
        "crowds_test.Crowds.test_a_full_agent_lets_connections_be_plain",
    ],
    "bypass": [
        "bypass_test.Bypass.test_ipv4_and_ipv6",
        "bypass_test.Bypass.test_only_by_rule_and_where_automatic_rules_have_it",
        "bypass_test.Bypass.test_every_byte_once_and_in_order",
        "bypass_test.Bypass.test_the_end_comes_behind_the_last_byte",
        "bypass_test.Bypass.test_who_closes_with_bytes_that_are_not_read_resets",
        "bypass_leave_test.Leave.test_an_agent_that_is_started_again_takes_pairs_over",
        "bypass_leave_test.Leave.test_a_member_whose_receives_may_wait_or_that_is_signalled_is_sent_nothing_more",
        "bypass_test.Bypass.test_an_agent_that_stands_still_forgets_those_that_ended_and_nobody_else",
        "local_test.Local.test_what_smcctl_shows",
    ],
    "ivshmem": [
        "ivshmem_test.Ivshmem.test_bytes_go_through_the_area",
        "ivshmem_test.Ivshmem.test_a_peer_that_is_killed_is_forgotten_and_comes_back",
        "ivshmem_test.Ivshmem.test_a_full_area_is_plain_tcp",
    ],
}


class Timed(unittest.TextTestResult):
    def startTest(self, test):
        self.began = time.monotonic()
        super().startTest(test)

    def stopTest(self, test):
        super().stopTest(test)
        self.stream.writeln(f"  {time.monotonic() - self.began:.1f} s")


def main():
    if len(sys.argv) != 2 or sys.argv[1] not in WAYS:
        for way, tests in WAYS.items():
            print(f"{way:10} {len(tests)}")
        return 2 if len(sys.argv) != 1 else 0
    Lab.series, Node.defaults = "gate", TIME_ENOUGH
    tests = unittest.defaultTestLoader.loadTestsFromNames(WAYS[sys.argv[1]])
    done = unittest.TextTestRunner(verbosity=2, resultclass=Timed).run(tests)
    for test, why in done.skipped:
        print(f"not tried: {test}: {why}", file=sys.stderr)
    return 0 if done.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
