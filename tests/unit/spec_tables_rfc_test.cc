// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The tables of RFC 7609 for version 1, CDC, and the enumerations.
#include "spec_tables.h"

using namespace smc;
using namespace smc::test::tables;

TEST_CASE("rfc_7609_a23__accept") {
    compare(R"(0 4 eye_catcher eye catcher
               4 1 clc_message_type Type
               5 2 clc_message_length Length
               7.0 4b smc_version Version
               7.4 1b contact F
               7.5 1b smc_type_rc_saved Rsrvd in version 1
               7.6 2b smcv2_type Rsrvd in version 1
               8 8 sender_peer_id Server's Peer ID
               16 16 gid Server's RoCE GID
               32 6 mac_address Server's RoCE MAC address
               38 3 qp_number Server QP
               41 4 rkey Server RMB RKey
               45 1 rmbe_index Server RMB indx
               46 4 rmbe_alert_token Srvr RMB alert tkn
               50.0 4b rmbe_size Bsize
               50.4 4b mtu_size MTU
               51 1 -
               52 8 rmb_virtual_address Server's RMB virtual address
               60 1 -
               61 3 psn Server's initial packet sequence number)",
            fields<clc::Header, wire::AcceptSmcrV1>({0, 0}), 64);
}

TEST_CASE("rfc_7609_a25__decline") {
    compare(R"(0 4 eye_catcher eye catcher
               4 1 clc_message_type Type
               5 2 clc_message_length Length
               7.0 4b smc_version Version
               7.4 1b out_of_sync S
               7.5 3b -
               8 8 sender_peer_id Sender's Peer ID
               16 4 sender_diagnosis_information Peer Diagnosis Information
               20 4 -)",
            fields<clc::Header, wire::DeclineV1>({0, 0}), 24);
}

TEST_CASE("rfc_7609_a31__confirm_link") {
    compare(R"(0  1  -
               1 1 length Length
               2  1  -
               3.0 1b reply R
               3.1 7b -
               4 6 mac_address Sender's RoCE MAC address
               10 16 gid Sender's RoCE GID
               26 3 qp_number Sender's QP number
               29 1 link_number Link number
               30 4 link_user_id Sender's link userID
               34 1 max_links Max links
               35 9 -)",
            fields<wire::LlcHeaderV1, llc::ConfirmLink>({0, 0}), 44);
}

TEST_CASE("rfc_7609_a34_a35__delete_link_and_confirm_rkey") {
    compare(R"(0  1  -
               1 1 length Length
               2  1  -
               3.0 1b reply R
               3.1 1b all A
               3.2 1b orderly O
               3.3 5b -
               4 1 link_number Linknum
               5 4 reason_code reason code
               9 35 -)",
            fields<wire::LlcHeaderV1, llc::DeleteLink>({0, 0}), 44);
    compare(R"(0  1  -
               1 1 length Length
               2  1  -
               3.0 1b reply R
               3.1 1b -
               3.2 1b negative_response Z
               3.3 1b configuration_retry C
               3.4 4b -
               4 1 num_tkns NumTkns
               5 4 new_rmb_rkey New RMB RKey for this link
               9 8 new_rmb_virtual_address New RMB virtual address for this link
               17 26* other_link_rmb_specifications Other link RMB specifications
               43 1 -)",
            fields<wire::LlcHeaderV1, llc::ConfirmRkey>({0, 0}), 44);
}

TEST_CASE("rfc_7609_a4__cdc") {
    compare(R"(0 1 type Type
               1 1 length Length
               2 2 sequence_number Sequence number
               4 4 smcr_alert_token SMC-R alert token
               8  2  -
               10 2 producer_cursor_wrap_seqno Producer cursor wrap seqno
               12 4 producer_cursor Producer Cursor
               16 2  -
               18 2 consumer_cursor_wrap_seqno Consumer cursor wrap seqno
               20 4 consumer_cursor Consumer Cursor
               24.0 1b writer_blocked B
               24.1 1b urgent_data_pending P
               24.2 1b urgent_data_present U
               24.3 1b request_for_consumer_cursor_update R
               24.4 1b failover_validation F
               24.5 3b -
               25.0 1b sending_done D
               25.1 1b peer_connection_closed C
               25.2 1b abnormal_close A
               25.3 5b -
               26 18 -)",
            fields<cdc::Message>({0}), 44);
}

TEST_CASE("enumerations__have_the_values_of_the_pages") {
    CHECK(clc::text(clc::Offer{0}) == "SMC-R");
    CHECK(clc::text(clc::Offer{1}) == "SMC-D");
    CHECK(clc::text(clc::Offer{2}) == "none");
    CHECK(clc::text(clc::Offer{3}) == "SMC-R and SMC-D");
    CHECK(clc::text(clc::Os{1}) == "z/OS");
    CHECK(clc::text(clc::Os{2}) == "Linux");
    CHECK(clc::text(clc::Os{3}) == "AIX");
    CHECK(clc::text(clc::Os{15}) == "unknown");
    const char* mtu[] = {"0 (reserved)", "1 (256)", "2 (512)", "3 (1024)", "4 (2048)", "5 (4096)", "6 (reserved)"};
    for (unsigned i = 0; i < 7; i++) {
        CHECK(clc::text(static_cast<clc::Mtu>(i)) == mtu[i]);
    }
    const std::pair<std::uint32_t, const char*> reasons[] = {
        {0x00010000, "0x00010000 (lost path)"},
        {0x00020000, "0x00020000 (operator initiated termination)"},
        {0x00030000, "0x00030000 (program initiated termination, link inactivity)"},
        {0x00040000, "0x00040000 (LLC protocol violation)"},
        {0x00050000, "0x00050000 (asymmetric link no longer needed)"},
        {0x00100000, "0x00100000 (unknown link ID)"},
    };
    for (const auto& [code, meaning] : reasons) {
        CHECK(text(llc::DeleteLinkReason{code}) == meaning);
    }
    CHECK(text(llc::AddLinkReason{1}) == "0x1 (no alternate path available)");
    CHECK(text(llc::AddLinkReason{2}) == "0x2 (invalid MTU value specified)");
}
