// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The agent's JSON answers as text.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <ostream>
#include <string>

namespace smc::ctl {

void print_status(std::ostream& out, const nlohmann::json& status);
void print_connections(std::ostream& out, const nlohmann::json& connections);
// `details`: 0 to 2, as often as -d was given.
struct GroupView {
    bool links = false;
    int details = 0;
    bool smcr = true, smcd = true;
};
void print_link_groups(std::ostream& out, const nlohmann::json& groups, const GroupView& view);
[[nodiscard]] nlohmann::json chosen(nlohmann::json groups, const GroupView& view);
void print_devices(std::ostream& out, const nlohmann::json& devices, int details);
struct SocketView {
    bool details = false;
    bool smcr = true, smcd = true, tcp = true;
};
// In the columns of smcss.
void print_sockets(std::ostream& out, const nlohmann::json& connections, const SocketView& view);
[[nodiscard]] nlohmann::json chosen(nlohmann::json connections, const SocketView& view);
void print_probe(std::ostream& out, const nlohmann::json& verdict);
void print_bypass(std::ostream& out, const nlohmann::json& bypass);
void print_revoked(std::ostream& out, const nlohmann::json& answer);
void print_info(std::ostream& out, const nlohmann::json& status);
void print_stats(std::ostream& out, const nlohmann::json& sums);
void print_pnet(std::ostream& out, const nlohmann::json& devices);
void print_dry_run(std::ostream& out, const nlohmann::json& answer);
void print_upgrade(std::ostream& out, const nlohmann::json& answer);
void print_drain(std::ostream& out, const nlohmann::json& answer);
void print_ueids(std::ostream& out, const nlohmann::json& answer);
void print_seid(std::ostream& out, const nlohmann::json& answer);
// All fabrics of a status from its object "ism", which is the first fabric and holds the other ones.
[[nodiscard]] nlohmann::json fabrics_of(const nlohmann::json& ism);
// 1536: "1.5 KiB".
[[nodiscard]] std::string bytes(const nlohmann::json& value);
void print_explanation(std::ostream& out, const nlohmann::json& explanation);

}  // namespace smc::ctl
