// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The tables of SMC v2.1, and those of RFC 7609 that it refers to.
#include "spec_tables.h"

using namespace smc;
using namespace smc::test::tables;

TEST_CASE("rfc_7609_a1__tcp_option") {
    compare(R"(0 1 kind Kind
               1 1 length Length
               2 4 exid ExID)",
            fields<tcp::SmcOption>({0}));
}

TEST_CASE("rfc_7609_a22__proposal") {
    compare(R"(0 4 eye_catcher eye catcher
               4 1 clc_message_type Type
               5 2 clc_message_length Length
               7.0 4b smc_version Version
               7.4 2b smcv2_type Rsrvd in version 1; SMCv2 type
               7.6 2b smcv1_type Rsrvd in version 1; SMCv1 type
               8 8 smcr_client_peer_id Client's Peer ID
               16 16 smcr_v1_client_preferred_gid Client's preferred GID
               32 6 smcr_v1_client_preferred_mac_address Client's preferred RoCE MAC address
               38 2 smcv1_ip_subnet_extension_offset Offset to mask/prefix area
               40 4 subnet_mask IPv4 Subnet Mask
               44 1 number_of_significant_bits IPv4 Mask Lgth
               45 2  -
               47 1 number_of_ipv6_prefixes Num IPv6 prfx
               48 * prefix_array Array of IPv6 prefixes)",
            fields<clc::Header, wire::ProposalBase, clc::Subnet>({0, 0, 40}));
    compare(R"(0 16 prefix IPv6 prefix value
               16 1 prefix_length Prefix Length)",
            fields<clc::Ipv6Prefix>({0}));
}

TEST_CASE("v21__proposal_base_message") {
    compare(R"(0 4 eye_catcher Eye catcher 'SMCR'
               4 1 clc_message_type CLC Message Type 01
               5 2 clc_message_length CLC Message Length
               7.0 4b smc_version SMC Version
               7.4 2b smcv2_type SMCv2 Type
               7.6 2b smcv1_type SMCv1 Type
               8 8 smcr_client_peer_id SMC-R Client Peer ID
               16 16 smcr_v1_client_preferred_gid SMC-R V1 Client Preferred GID
               32 6 smcr_v1_client_preferred_mac_address SMC-R V1 Client Preferred MAC address
               38 2 smcv1_ip_subnet_extension_offset SMCv1 IP Subnet Extension Offset
               40 8 smcd_v1_client_ism_gid SMC-D V1 Client ISM-GID
               48 2 ismv2_chid ISMv2 CHID
               50 2 smc_version_2_extension_offset SMC Version 2 Extension Offset
               52 3 vendor_oui Vendor OUI
               55 5 vendor_unique_experimental_options Vendor Unique Experimental Options
               60 20 -)",
            fields<clc::Header, wire::ProposalBase, wire::ProposalGrowth>({0, 0, 0}), 80);
}

TEST_CASE("v21__proposal_extensions") {
    compare(R"(0 1 eid_number EID Number
               1 1 ismv2_gid_number ISMv2 GID Number
               2  1  -
               3.0 4b smc_version_release_number SMC Version Release Number
               3.4 3b -
               3.7 1b seid_indicator SEID indicator
               4  2  -
               6 2 smcdv2_extension_offset SMCDv2 Extension Offset
               8 16 rocev2_gid RoCEv2 GID
               24 1 max_conn_per_lg Max Conn per LG
               25 1 max_links_per_lg Max Links per LG
               26 2 feature_bit_mask V2.1 Feature bit mask
               28 12 -
               40 * eid_array_area EID Array Area)",
            fields<clc::V2Extension>({0}));
    compare(R"(0 32 system_eid System EID
               32 16 -
               48 * ismv2_gid_chid_array_area ISMv2 GID-CHID Array Area)",
            fields<clc::SmcdExtension>({0}));
    compare(R"(0 8 ismv2_gid ISMv2 GID
               8 2 ismv2_chid ISMv2 CHID)",
            fields<clc::GidChid>({0}));
}

TEST_CASE("v21__accept_and_confirm_smcd") {
    compare(R"(0 4 eye_catcher Eye catcher 'SMCD'
               4 1 clc_message_type CLC Message Type
               5 2 clc_message_length Length
               7.0 4b smc_version SMC Version
               7.4 1b contact Contact
               7.5 1b -
               7.6 2b smcv2_type SMCv2 Type
               8 8 ismv2_gid ISMv2-GID
               16 8 dmb_token DMB Token
               24 1 dmbe_index DMBE (connection) Index
               25.0 4b dmbe_size DMBE Size
               25.4 4b -
               26 2  -
               28 4 link_id Link ID
               32 2 ismv2_vchid ISMv2 VCHID
               34 32 eid EID
               66 8 extended_gid_part_2 Extended GID Part 2
               74 1  -
               75.0 4b os_type OS Type
               75.4 4b smc_version_release_number SMC Version Release Number
               76 2  -
               78 32 peer_host_name FCE Peer Host Name
               110 2 -
               112 2 feature_bit_mask FCE v2.1 Feature bit mask
               114 4 vendor_unique_experimental_options FCE Vendor Unique Experimental Options Area
               118 8 -)",
            fields<clc::Header, wire::AcceptSmcdV1, wire::AcceptSmcdV2, wire::FceBase, wire::FceRelease1>(
                {0, 0, 0, 74, 74}));
}

TEST_CASE("v21__accept_and_confirm_smcr") {
    compare(R"(0 4 eye_catcher Eye catcher 'SMCR'
               4 1 clc_message_type CLC Message Type
               5 2 clc_message_length Length
               7.0 4b smc_version SMC Version
               7.4 1b contact Contact
               7.5 1b smc_type_rc_saved SMC Type RC Saved
               7.6 2b smcv2_type SMCv2 Type
               8 8 sender_peer_id Sender Peer ID
               16 16 gid GID
               32 6 mac_address MAC Address
               38 3 qp_number QP Number
               41 4 rkey Rkey
               45 1 rmbe_index RMBE (connection) Index
               46 4 rmbe_alert_token RMBE Alert Token
               50.0 4b rmbe_size RMBE Size
               50.4 4b mtu_size MTU Size
               51 1  -
               52 8 rmb_virtual_address RMB PCI Virtual Address
               60 1  -
               61 3 psn PSN
               64 32 eid EID
               96 8  -
               104.0 1b v2_link_type V2 Link Type
               104.1 7b -
               105.0 4b os_type OS Type
               105.4 4b smc_version_release_number SMC Version Release Number
               106 2 -
               108 32 peer_host_name FCE Peer Host Name
               140 1 max_connections_per_lg FCE Max Connections per LG
               141 1 max_links_per_lg FCE Max Links per LG
               142 2 feature_bit_mask FCE Feature Bit Mask
               144 4 vendor_unique_experimental_options FCE Vendor Unique Experimental Options Area
               148 8 -
               156 1 gid_list_no_of_entries GID List No of Entries
               157 3 -
               160 * gid_list_array_area GID List Array Area)",
            fields<clc::Header, wire::AcceptSmcrV1, wire::AcceptSmcrV2, wire::FceLinkType, wire::FceBase,
                   wire::FceMaxima, wire::FceRelease1, wire::ClientGidList>({0, 0, 0, 104, 104, 104, 104, 156}));
}

TEST_CASE("v21__decline") {
    compare(R"(0 4 eye_catcher Eye catcher
               4 1 clc_message_type CLC Message Type 04
               5 2 clc_message_length CLC Message Length
               7.0 4b smc_version SMC Version
               7.4 1b out_of_sync Out of Sync
               7.5 3b -
               8 8 sender_peer_id Sender Peer ID
               16 4 sender_diagnosis_information Sender Diagnosis Information
               20.0 4b os_type OS Type
               20.4 4b -
               21 3  -
               24 4 smcdv2_reason_code SMC-Dv2 Reason Code
               28 4 smcdv1_reason_code SMC-Dv1 Reason Code
               32 4 smcrv2_reason_code SMC-Rv2 Reason Code
               36 4 smcrv1_reason_code SMC-Rv1 Reason Code)",
            fields<clc::Header, wire::DeclineV1, wire::DeclineOs, wire::DeclineTypes>({0, 0, 0, 0}));
}

TEST_CASE("v21__llc_type_field_and_confirm_link") {
    compare(R"(0.0 1b type_code_unsupported LLC Type Code Unsupported
               0.1 3b version LLC SMC-R Version
               0.4 4b type LLC Type Code
               1 2 length Length
               3.0 1b reply Request or Reply
               3.1 3b -
               3.4 4b system_cache_size System Cache Size
               4 6 mac_address MAC Address
               10 16 gid RoCEv2 GID
               26 3 qp_number QP number
               29 1 link_number Link number
               30 4 link_user_id Link ID
               34 1 max_links Max Links per LG
               35 1 max_connections_per_lg Max Connections per LG
               36 8  -)",
            fields<wire::LlcTypeField, wire::LlcHeaderV2, llc::ConfirmLink, wire::ConfirmLinkV2>({0, 0, 0, 0}), 44);
}

TEST_CASE("rfc_7609_a32__add_link") {
    compare(R"(0  1  -
               1 1 length Length
               2.0 4b -
               2.4 4b reason_code RsnCode
               3.0 1b reply R
               3.1 1b rejection Z
               3.2 6b -
               4 6 mac_address Sender's RoCE MAC address
               10 16 gid Sender's RoCE GID
               26 3 qp_number Sender's QP number
               29 1 link_number Link number
               30.0 4b -
               30.4 4b mtu MTU
               31 3 initial_psn Initial PSN
               34 10 -)",
            fields<wire::LlcHeaderV1, wire::AddLinkV1, wire::AddLinkAddress>({0, 0, 0}), 44);
}

TEST_CASE("v21__add_link") {
    compare(R"(0  1  -
               1 2 length Length
               3.0 1b reply Request or Reply
               3.1 1b response_type_negative Response Type
               3.2 2b -
               3.4 4b reject_reason_code Reject Reason Code
               4 6 mac_address MAC Address
               10 2  -
               12 16 gid RoCEv2 GID
               28 3 qp_number QP number
               31 1 link_number Link number
               32.0 4b -
               32.4 4b mtu QP Enumerated MTU
               33 3 initial_psn Initial PSN
               36 8  -
               44.0 1b link_type link type
               44.1 7b -
               45 1  -
               46 16 client_target_gid Client Target GID
               62 8  -
               70 2 no_of_rkeys No of RKeys
               72 * rkey_array_area RKey Array Area)",
            fields<wire::LlcHeaderV2, wire::AddLinkV2, wire::AddLinkPadded, llc::AddLinkLarge>({0, 0, 0, 0}));
    compare(R"(0 4 reference_rkey Reference RKey
               4 4 new_rkey New RKey
               8 8 new_virtual_address New Virtual Address)",
            fields<llc::RTokenPair>({0}));
}

TEST_CASE("rfc_7609_a33__add_link_continuation") {
    compare(R"(0  1  -
               1 1 length Length
               2  1  -
               3.0 1b reply R
               3.1 7b -
               4 1 link_number Linknum
               5 1 num_rtokens NumRTokens
               6  2  -
               8 32* rkey_rtoken_pairs RKey/RToken pairs
               40 4 -)",
            fields<wire::LlcHeaderV1, llc::AddLinkContinuation>({0, 0}), 44);
}

TEST_CASE("v21__request_add_link_and_delete_link") {
    compare(R"(0  1  -
               1 2 length Length
               3.0 1b reply Request or Reply
               3.1 1b response_type_negative Response Type
               3.2 2b -
               3.4 4b reject_reason_code Reject Reason Code
               4  20 -
               24 1 gid_list_no_of_entries GID List No of Entries
               25 3  -
               28 * gid_list_array_area GID List Array Area)",
            fields<wire::LlcHeaderV2, wire::RequestAddLinkFlags, wire::RequestAddLinkGids>({0, 0, 0}));
    compare(R"(0  1  -
               1 2 length Length
               3.0 1b reply Request or Reply
               3.1 1b all all links in the LG
               3.2 1b orderly orderly
               3.3 5b -
               4 1 link_number Link number
               5 4 reason_code Reason Code
               9  35 -)",
            fields<wire::LlcHeaderV2, llc::DeleteLink>({0, 0}), 44);
}

TEST_CASE("v21_and_rfc_7609_a35_a36__confirm_rkey") {
    compare(R"(0  1  -
               1 2 length Length
               3.0 1b reply Request or Reply
               3.1 1b -
               3.2 1b negative_response negative reply
               3.3 1b configuration_retry Retry RKey set
               3.4 4b -
               4 1 num_tkns No of other RToken pairs
               5 4 new_rmb_rkey New RMB RKey
               9 8 new_rmb_virtual_address New RMB Virtual Address
               17 26* other_link_rmb_specifications Other RMB RToken Pairs
               43 1 -)",
            fields<wire::LlcHeaderV2, llc::ConfirmRkey>({0, 0}), 44);
    compare(R"(0  1  -
               1 1 length Length
               2  1  -
               3.0 1b reply R
               3.1 1b -
               3.2 1b negative_response Z
               3.3 5b -
               4 1 num_tkns_left NumTknsLeft
               5 39* other_link_rmb_specifications Other link RMB specifications)",
            fields<wire::LlcHeaderV1, llc::ConfirmRkeyContinuation>({0, 0}), 44);
    compare(R"(0 1 link_number Link Number
               1 4 rkey Rkey for this link
               5 8 virtual_address RMB Virtual Address for this link)",
            fields<llc::LinkRToken>({0}));
}

TEST_CASE("v21_and_rfc_7609_a37__delete_rkey") {
    compare(R"(0  1  -
               1 2 length Length
               3.0 1b reply Request or Reply
               3.1 1b -
               3.2 1b reply_type_negative Reply type
               3.3 5b -
               4 1 count Count
               5 1 invalid_rkey_count Invalid Rkey Count
               6  2  -
               8 32* rkeys_not_deleted RKeys not deleted
               40 4  -)",
            fields<wire::LlcHeaderV2, wire::DeleteRkeyReplyV2>({0, 0}), 44);
    compare(R"(0  1  -
               1 1 length Length
               2  1  -
               3.0 1b reply R
               3.1 1b -
               3.2 1b negative_response Z
               3.3 5b -
               4 1 count Count
               5 1 error_mask Error Mask
               6  2  -
               8 32* deleted_rkeys Deleted RKeys
               40 4  -)",
            fields<wire::LlcHeaderV1, wire::DeleteRkeyV1>({0, 0}), 44);
    compare(R"(0  1  -
               1 2 length Length
               3.0 1b reply Request or Reply
               3.1 1b -
               3.2 1b reply_type_negative Reply type
               3.3 5b -
               4 1 count Count
               5  3  -
               8 * deleted_rkeys RKeys to be deleted)",
            fields<wire::LlcHeaderV2, wire::DeleteRkeyRequestV2>({0, 0}));
}

TEST_CASE("v21_and_rfc_7609_a38__test_link") {
    compare(R"(0  1  -
               1 2 length Length
               3.0 1b reply Request or Reply
               3.1 7b -
               4 16 user_data User Data
               20 24 -)",
            fields<wire::LlcHeaderV2, llc::TestLink>({0, 0}), 44);
    compare(R"(0  1  -
               1 1 length Length
               2  1  -
               3.0 1b reply R
               3.1 7b -
               4 16 user_data User Data
               20 24 -)",
            fields<wire::LlcHeaderV1, llc::TestLink>({0, 0}), 44);
}
