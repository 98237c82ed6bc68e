# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""The kernel's own SMC, net/smc, as a peer. As a program, in the machine that has it: its generic netlink family,
without smc-tools.

    netsmc.py ueid NAME     adds a UEID
    netsmc.py flush         removes all UEIDs
    netsmc.py pnet NAME NETDEV IBDEV   says that both are on one physical network; older kernels cannot see it for rxe
    netsmc.py show          prints JSON: link groups, links, fallback counts
    netsmc.py stats         prints JSON: connections that became SMC-Rv2 in either role, and that fell back
"""
import json
import os
import socket
import struct
import sys

NETLINK_GENERIC, GENL_ID_CTRL, CTRL_CMD_GETFAMILY = 16, 16, 3
NLM_F_REQUEST, NLM_F_ACK, NLM_F_DUMP = 1, 4, 0x300
NLMSG_ERROR, NLMSG_DONE = 2, 3
# include/uapi/linux/smc.h
GET_LGR_SMCR, GET_LINK_SMCR, GET_STATS, GET_FBACK_STATS, ADD_UEID, FLUSH_UEID = 2, 3, 7, 8, 10, 12
STATS, FBACK_STATS, SMCR_TECH, CLIENT_V2, SERVER_V2 = 7, 8, 2, 8, 10
PNETID_ADD = 2
# their names in JSON
LGR_R_TYPE, LINK_SMCR, LINK_DEVICE, LINK_CONNECTIONS = "3", "3", "2", "6"
TYPES = ("NONE", "SINGLE", "SYMMETRIC", "ASYMMETRIC_PEER", "ASYMMETRIC_LOCAL")  # net/smc/smc_core.h
NESTED = {GET_LGR_SMCR: "link_groups", GET_LINK_SMCR: "links", GET_FBACK_STATS: "fallbacks"}


def attribute(kind, payload):
    return struct.pack("=HH", 4 + len(payload), kind) + payload + b"\0" * (-len(payload) % 4)


def attributes(data):
    out = {}
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        if length < 4:
            break
        value = data[4:length]
        out[kind & 0x3FFF] = attributes(value) if kind & 0x8000 else value.hex()
        data = data[(length + 3) & ~3 :]
    return out


def request(sock, family, command, flags, payload=b""):
    """Sends a netlink request; the payloads of its answers."""
    body = struct.pack("=BBH", command, 1, 0) + payload
    sock.send(struct.pack("=IHHII", 16 + len(body), family, NLM_F_REQUEST | flags, 1, 0) + body)
    answers = []
    while True:
        data = sock.recv(1 << 20)
        while data:
            length, kind = struct.unpack_from("=IH", data)
            body, data = data[16:length], data[(length + 3) & ~3 :]
            if kind == NLMSG_ERROR:
                code = struct.unpack_from("=i", body)[0]
                if code:
                    raise OSError(-code, f"netlink command {command}")
                return answers
            if kind == NLMSG_DONE:
                return answers
            answers.append(attributes(body[4:]))
            if not flags & (NLM_F_DUMP | NLM_F_ACK):
                return answers


def number(value):
    return int.from_bytes(bytes.fromhex(value), sys.byteorder)


def text(value):
    return value.encode() + b"\0"


def family_of(sock, name):
    found = request(sock, GENL_ID_CTRL, CTRL_CMD_GETFAMILY, 0, attribute(2, text(name)))
    return struct.unpack("=H", bytes.fromhex(found[0][1]))[0]


def main():
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_GENERIC) as sock:
        sock.bind((0, 0))
        if sys.argv[1] == "ueid":
            request(
                sock, family_of(sock, "SMC_GEN_NETLINK"), ADD_UEID, NLM_F_ACK, attribute(1, text(sys.argv[2].ljust(32)))
            )
        elif sys.argv[1] == "flush":
            request(sock, family_of(sock, "SMC_GEN_NETLINK"), FLUSH_UEID, NLM_F_ACK)
        elif sys.argv[1] == "pnet":
            name, netdev, ibdev = sys.argv[2:5]
            request(
                sock,
                family_of(sock, "SMC_PNETID"),
                PNETID_ADD,
                NLM_F_ACK,
                attribute(1, text(name)) + attribute(2, text(netdev)) + attribute(3, text(ibdev)) + attribute(4, b"\1"),
            )
        elif sys.argv[1] == "stats":
            family = family_of(sock, "SMC_GEN_NETLINK")
            tech = request(sock, family, GET_STATS, NLM_F_DUMP)[0][STATS][SMCR_TECH]
            fallbacks = request(sock, family, GET_FBACK_STATS, NLM_F_DUMP)
            json.dump(
                {
                    "client": number(tech[CLIENT_V2]),
                    "server": number(tech[SERVER_V2]),
                    "fallbacks": [a[FBACK_STATS] for a in fallbacks],
                },
                sys.stdout,
            )
        else:
            family = family_of(sock, "SMC_GEN_NETLINK")
            shown = {name: request(sock, family, command, NLM_F_DUMP) for command, name in NESTED.items()}
            json.dump(shown, sys.stdout)


# --- for the host of the machine ------------------------------------------------------------------------------------
UEID = "SMC-AGENT.DEFAULT"


def ask(machine, *arguments):
    """Runs this program in the machine; its output, as an object."""
    printed = machine.run(["python3", "-B", os.path.abspath(__file__), *arguments]).stdout
    return json.loads(printed) if printed else None


def make_ready(machine, ueid=UEID):
    """Configures net/smc in the machine for SMC-Rv2.1."""
    machine.modprobe("smc", "smc_diag")
    ask(machine, "ueid", ueid)


def types(machine):
    """The types of the SMC-R link groups in the machine."""
    return [TYPES[number(next(iter(a.values()))[LGR_R_TYPE])] for a in ask(machine, "show")["link_groups"]]


def busy_devices(machine):
    """The devices of links that have connections."""
    links = [a[LINK_SMCR] for a in ask(machine, "show")["links"] if LINK_SMCR in a]
    busy = [link for link in links if number(link[LINK_CONNECTIONS])]
    return [bytes.fromhex(link[LINK_DEVICE]).rstrip(b"\0").decode() for link in busy]


def counters(machine):
    return ask(machine, "stats")


if __name__ == "__main__":
    main()
