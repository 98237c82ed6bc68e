# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""tshark's view of SMC in a capture, and the table that maps its fields to ours."""
import json
import re
import subprocess

V1 = {"SMC-R": 0, "SMC-D": 1, "none": 2, "SMC-R and SMC-D": 3}
OS = {"none": 0, "z/OS": 1, "Linux": 2, "AIX": 3, "unknown": 15}


def number(value):
    """The number in a value of ours or tshark's: a number, a flag, or text that begins with one."""
    if isinstance(value, (bool, int)):
        return int(value)
    return int(re.match(r"0x[0-9a-fA-F]+|\d+", value).group(), 0)


def same_text(value):
    return str(value).strip().lower()


def offer(value):
    return V1[value] if value in V1 else number(value)


def os_type(value):
    return OS[value] if value in OS else number(value)


# type -> our field, or several that tshark shows under one name -> (tshark's field, how to compare)
COMMON = {"clc_message_length": ("smc.length", number)}
FIELDS = {
    "PROPOSAL": {
        **COMMON,
        "smc_version": ("smc.proposal.smc.version", number),
        "smcv1_type": ("smc.proposal.smc.type", offer),
        "smcv2_type": ("smc.proposal.smcv2.type", offer),
        "smcr_client_peer_id": ("smc.proposal.sender.client.peer.id", number),
        "smcr_v1_client_preferred_gid": ("smc.proposal.client.preferred.gid", same_text),
        "smcr_v1_client_preferred_mac_address": ("smc.proposal.client.preferred.mac", same_text),
        "smcv1_ip_subnet_extension_offset": ("smc.proposal.smcv1_subnet_ext_offset", number),
        "smc_version_2_extension_offset": ("smc.proposal.smcv2_ext_offset", number),
        "ip_subnet_extension.subnet_mask": ("smc.outgoing.interface.subnet.mask", same_text),
        "ip_subnet_extension.number_of_significant_bits": (
            "smc.outgoing.interface.subnet.mask.number.of.significant.bits",
            number,
        ),
        "ip_subnet_extension.number_of_ipv6_prefixes": ("smc.proposal.ipv6.prefix.count", number),
        "v2_extension.eid_number": ("smc.proposal.eid.count", number),
        "v2_extension.ismv2_gid_number": ("smc.proposal.ismv2_gid_count", number),
        "v2_extension.smc_version_release_number": ("smc.proposal.smc.version.relnum", number),
        "v2_extension.seid_indicator": ("smc.proposal.smc.seid", number),
        "v2_extension.smcdv2_extension_offset": ("smc.proposal.smcdv2_ext_offset", number),
        "v2_extension.eid_array_area": ("smc.proposal.eid", same_text),
        "smcdv2_extension.system_eid": ("smc.proposal.system.eid", same_text),
    },
    "ACCEPT": {
        **COMMON,
        "contact": ("smc.accept.first.contact", number),
        "sender_peer_id": ("smc.accept.sender.server.peer.id", number),
        "gid": ("smc.accept.server.preferred.gid", same_text),
        "mac_address": ("smc.accept.server.preferred.mac", same_text),
        "qp_number": ("smc.accept.server.qp.number", number),
        "rkey": ("smc.accept.server.rmb.rkey", number),
        "rmbe_index": ("smc.accept.server.tcp.conn.index", number),
        "rmbe_alert_token": ("smc.accept.server.rmb.element.alert.token", number),
        "rmbe_size": ("smc.accept.rmb.buffer.size", number),
        "mtu_size": ("smc.accept.qp.mtu.value", number),
        "rmb_virtual_address": ("smc.accept.server.rmb.virtual.address", number),
        "psn": ("smc.accept.initial.psn", number),
        "eid": ("smc.accept.eid", same_text),
        "ismv2_gid": ("smc.accept.sender.server.ism.gid", number),
        "dmb_token": ("smc.accept.dmb.token", number),
        "dmbe_index": ("smc.accept.dmbe.conn.index", number),
        "dmbe_size": ("smc.accept.dmbe.buffer.size", number),
        "link_id": ("smc.accept.server.linkid", number),
        "ismv2_vchid": ("smc.accept.smc.chid", number),
        "first_contact_extension.os_type": ("smc.accept.os.type", os_type),
        "first_contact_extension.smc_version_release_number": ("smc.accept.smc.version.relnum", number),
        "first_contact_extension.peer_host_name": ("smc.accept.peer.host.name", same_text),
    },
    "DECLINE": {
        **COMMON,
        "smc_version": ("smc.decline.smc.version", number),
        "out_of_sync": ("smc.decline.osync", number),
        "sender_peer_id": ("smc.sender.peer.id", number),
        "sender_diagnosis_information smcdv2_reason_code smcdv1_reason_code smcrv2_reason_code smcrv1_reason_code": (
            "smc.peer.diag.info",
            number,
        ),
    },
    "CDC": {
        "sequence_number": ("smc.rmbe.ctrl.seqno", number),
        "smcr_alert_token": ("smc.rmbe.ctrl.alert.token", number),
        "producer_cursor_wrap_seqno consumer_cursor_wrap_seqno": ("smc.rmbe.ctrl.prod.wrap.seq", number),
        "producer_cursor consumer_cursor": ("smc.rmbe.ctrl.peer.prod.curs", number),
        "writer_blocked": ("smc.rmbe.ctrl.write.blocked", number),
        "urgent_data_pending": ("smc.rmbe.ctrl.urgent.pending", number),
        "urgent_data_present": ("smc.rmbe.ctrl.urgent.present", number),
        "request_for_consumer_cursor_update": ("smc.rmbe.ctrl.cons.update.requested", number),
        "failover_validation": ("smc.rmbe.ctrl.failover.validation", number),
        "sending_done": ("smc.rmbe.ctrl.peer.sending.done", number),
        "peer_connection_closed": ("smc.rmbe.ctrl.peer.closed.conn", number),
        "abnormal_close": ("smc.rmbe.ctrl.peer.abnormal.close", number),
    },
}
FIELDS["CONFIRM"] = {
    ours: (
        theirs.replace("smc.accept", "smc.confirm")
        .replace("server.preferred.mac", "client.mac")
        .replace(".server", ".client"),
        how,
    )
    for ours, (theirs, how) in FIELDS["ACCEPT"].items()
}
FIELDS["CONFIRM"].update(
    {
        "gid": ("smc.client.gid", same_text),
        "rmbe_alert_token": ("smc.client.rmb.element.alert.token", number),
        "rmb_virtual_address": ("smc.client.rmb.virtual.address", number),
        "psn": ("smc.initial.psn", number),
        "client_rocev2_gid_list.gid_list_no_of_entries": ("smc.confirm.gid.list.entry_count", number),
        "client_rocev2_gid_list.gid_list_array_area": ("smc.confirm.gid.list.entry", same_text),
    }
)


def dissect(path):
    """frame -> tshark's field -> its values, for the frames in which tshark sees SMC."""
    done = subprocess.run(
        ["tshark", "-r", path, "-Y", "smc", "-T", "json", "--no-duplicate-keys"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    frames = {}
    for packet in json.loads(done.stdout or "[]"):
        layers = packet["_source"]["layers"]
        values = {}

        def walk(node):
            for key, value in node.items():
                for item in value if isinstance(value, list) else [value]:
                    if isinstance(item, dict):
                        walk(item)
                    else:
                        values.setdefault(key, []).append(item)

        for layer in layers.get("smc", {}) if isinstance(layers.get("smc"), list) else [layers.get("smc", {})]:
            walk(layer)
        frames[int(layers["frame"]["frame.number"])] = values
    return frames


def options(path):
    """The frames whose TCP header has option 254 of SMC."""
    done = subprocess.run(
        ["tshark", "-r", path, "-Y", "tcp.options.experimental.exid == 0xe2d4", "-T", "fields", "-e", "frame.number"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    return {int(frame) for frame in done.stdout.split()}


def compare(message, theirs):
    """Differences between one of our messages and tshark's fields of that frame, and how many fields were compared."""
    compared, different = 0, []
    for paths, (field, how) in FIELDS.get(message["type"], {}).items():
        values = []
        for path in paths.split():
            ours = message["fields"]
            for part in path.split("."):
                ours = ours.get(part) if isinstance(ours, dict) else None
            values += ours if isinstance(ours, list) else [] if ours is None else [ours]
        if not values or field not in theirs:
            continue
        ours = [how(v) for v in values]
        found = [how(v) for v in theirs[field]]
        compared += 1
        if ours != found:
            different.append(f"frame {message['frame']} {message['type']} {paths}: {ours}, tshark's {field}: {found}")
    return different, compared
