# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""smcctl decode as a user runs it: captures of Linux 6.12, captures made here, broken ones; tshark as the second
opinion."""
import collections
import gzip
import json
import os
import subprocess
import tempfile
import unittest

from lab import captures, tshark
from lab.basics import CTL, test_program
from packets import Capture, Connection, ethernet, roce_answer, roce_send
from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrFragment
from scapy.layers.l2 import ARP, Ether
from scapy.utils import RawPcapReader

HERE = os.path.dirname(os.path.abspath(__file__))
CAPTURES = os.path.join(HERE, "..", "captures")
CONTACT = os.path.join(CAPTURES, "linux612-smcrv2-first-and-subsequent-contact.pcap")
DECLINE = os.path.join(CAPTURES, "linux612-decline-no-common-eid.pcap")


decode = captures.run


def messages(*arguments, data=None):
    return captures.decode(*arguments, data=data, strict=True)


def clc(*arguments, data=None):
    return [m for m in messages(*arguments, data=data) if m["layer"] == "CLC"]


def sample(layer, kind=None, seed=1, count=400):
    out = subprocess.run(
        [test_program("smc-wire-samples"), str(seed), str(count)], check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    return [
        bytes.fromhex(line.split()[1])
        for line in out.splitlines()
        if line.startswith(layer) and (kind is None or bytes.fromhex(line.split()[1])[4] == kind)
    ]


class Linux(unittest.TestCase):
    def test_every_message_is_found(self):
        found = collections.Counter((m["layer"], m["type"]) for m in messages(CONTACT))
        self.assertEqual(
            found,
            {
                ("TCP", "OPTION 254"): 6,
                ("CLC", "PROPOSAL"): 3,
                ("CLC", "ACCEPT"): 3,
                ("CLC", "CONFIRM"): 3,
                ("CDC", "CDC"): 36,
                ("LLC", "CONFIRM LINK"): 2,
                ("LLC", "ADD LINK"): 2,
                ("LLC", "CONFIRM RKEY"): 8,
                ("LLC", "DELETE RKEY"): 12,
                ("LLC", "DELETE LINK"): 3,
            },
        )
        self.assertFalse([m for m in messages(CONTACT) if "fault" in m])

    def test_an_object_has_the_promised_keys(self):
        first = clc(CONTACT)[0]
        self.assertEqual(list(first), ["frame", "time", "from", "to", "layer", "type", "version", "fields"])
        self.assertEqual(
            (first["frame"], first["from"], first["to"], first["version"]), (12, "10.9.0.2:36732", "10.9.0.1:5000", 2)
        )
        self.assertAlmostEqual(first["time"], 1795220217.928408, places=5)

    def test_option_254_of_syn_and_syn_ack(self):
        told = [m for m in messages(DECLINE) if m["layer"] == "TCP"]
        fields = {"kind": 254, "length": 6, "exid": "SMCR"}
        self.assertEqual(
            [(m["frame"], m["from"], m["type"], m["version"], m["fields"]) for m in told],
            [
                (8, "10.9.0.2:50128", "OPTION 254", None, {"segment": "SYN", **fields}),
                (9, "10.9.0.1:5000", "OPTION 254", None, {"segment": "SYN-ACK", **fields}),
            ],
        )

    def test_tshark_says_the_same(self):
        for path in (CONTACT, DECLINE):
            frames, seen = tshark.dissect(path), collections.Counter()
            for message in messages(path):
                if message["layer"] in ("LLC", "TCP"):
                    continue  # tshark 4.0 takes version 2 of LLC for malformed; for options see below
                different, compared = tshark.compare(message, frames[message["frame"]])
                self.assertEqual(different, [])
                seen[message["type"]] += compared
            self.assertGreater(min(seen.values()), 3, seen)
            self.assertEqual(
                {f for f, v in frames.items() if "smc.clc_msg" in v},
                {m["frame"] for m in messages(path) if m["layer"] == "CLC"},
            )
            self.assertEqual(tshark.options(path), {m["frame"] for m in messages(path) if m["layer"] == "TCP"})

    def test_rdma_as_tshark_sees_it(self):
        names = ["frame.number", "infiniband.bth.psn", "infiniband.bth.opcode"]
        names += ["infiniband.reth.va", "infiniband.reth.r_key", "infiniband.reth.dmalen"]
        done = subprocess.run(
            ["tshark", "-r", CONTACT, "-T", "fields", *(word for name in names for word in ("-e", name))],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            check=True,
        )
        theirs = set()
        for line in done.stdout.splitlines():
            frame, psn, opcode, address, rkey, length = line.split("\t")
            if opcode == "17":
                theirs.add((int(frame), "ACK", int(psn)))
            elif address:
                theirs.add((int(frame), "WRITE", int(psn), address, rkey, int(length)))
        ours = {
            (m["frame"], m["type"], *[v for k, v in m["fields"].items() if k != "seen_again"])
            for m in messages("--rdma", CONTACT)
            if m["layer"] == "RDMA"
        }
        self.assertEqual(ours, theirs)
        self.assertEqual({kind for _, kind, *_ in ours}, {"ACK", "WRITE"})
        plain = [m for m in messages("--rdma", CONTACT) if m["layer"] != "RDMA"]
        self.assertEqual(plain, messages(CONTACT))

    def test_summary_tells_the_history(self):
        text = decode("--summary", CONTACT).stdout.decode()
        self.assertIn("connection 10.9.0.2:36732 > 10.9.0.1:5000, frames 9 to 81", text)
        self.assertIn("ACCEPT of SMC-Rv2.1 (the only type offered); first contact; EID TESTEID", text)
        self.assertEqual(text.count("client to server 4500, server to client 4500"), 3)
        self.assertEqual(text.count("subsequent contact"), 2)
        self.assertIn("link 1      10.9.0.1 qp 0x000011 - 10.9.0.2 qp 0x000011, MTU 1024, confirmed", text)
        self.assertIn("rejected    1 ADD LINK by the client", text)
        self.assertIn("operator initiated termination", text)
        declined = decode("--summary", DECLINE).stdout.decode()
        self.assertIn("DECLINE by the server: 0x03030000 (no SMC device for what was offered)", declined)
        (told,) = (m for m in messages(DECLINE) if m["type"] == "DECLINE")
        self.assertEqual(told["fields"]["sender_diagnosis_information"], 0x03030000)
        objects = [json.loads(line) for line in decode("--summary", "--json", CONTACT).stdout.splitlines()]
        self.assertEqual([o["kind"] for o in objects], ["connection"] * 3 + ["link_group", "counters"])
        self.assertEqual(objects[0]["bytes_client_to_server"], 4500)


class Generated(unittest.TestCase):
    """Messages that this library wrote, read by tshark: version 1, SMC-D, and others that no capture here has."""

    def setUp(self):
        self.dir = tempfile.TemporaryDirectory(prefix="smc-wire-")
        self.addCleanup(self.dir.cleanup)
        self.path = os.path.join(self.dir.name, "made.pcap")

    def test_clc(self):
        capture = Capture()
        for i, message in enumerate(sample("clc")):
            connection = Connection(capture, port=40000 + i)  # a port for which tshark has no protocol
            (connection.server if message[4] == 2 else connection.client)(message)
        capture.write(self.path)
        ours, theirs, seen = clc(self.path), tshark.dissect(self.path), collections.Counter()
        self.assertEqual(len(ours), 400)
        for message in ours:
            self.assertNotIn("fault", message)
            different, compared = tshark.compare(message, theirs[message["frame"]])
            self.assertEqual(different, [])
            seen[message["type"]] += compared
        self.assertEqual(set(seen), {"PROPOSAL", "ACCEPT", "CONFIRM", "DECLINE"})
        self.assertGreater(min(seen.values()), 300, seen)

    def link(self, capture):
        """First contact with queue pair 0x11 at the client, 0x22 at the server."""
        connection = Connection(capture)
        base = next(m["fields"] for m in messages(CONTACT) if m["type"] == "ACCEPT")
        self.assertEqual(base["qp_number"], "0x000011")
        self.assertEqual(
            [base[key] for key in ("rmbe_size", "rmbe_bytes", "mtu_size", "mtu_bytes")], [2, 65536, 3, 1024]
        )
        with open(os.path.join(CAPTURES, "linux-messages.hex")) as file:
            lines = [line.split() for line in file if line.startswith("linux612-smcrv2")]
        raw = {frame: bytes.fromhex(message) for _, frame, message in lines}
        accept, confirm = bytearray(raw["14"]), bytearray(raw["16"])
        for half, host, qpn in ((accept, 2, 0x22), (confirm, 1, 0x11)):
            half[28:32] = bytes([10, 0, 0, host])
            half[38:41] = qpn.to_bytes(3, "big")
            half[61:64] = bytes(3)
        connection.client(raw["12"])
        connection.server(bytes(accept))
        connection.client(bytes(confirm))
        return connection

    def test_llc_and_cdc_over_several_packets_and_retransmissions(self):
        capture = Capture()
        self.link(capture)
        sent, psn = [], 0
        for message in sample("llc", count=150) + sample("cdc", count=50):
            pieces = [message[i : i + 1024] for i in range(0, len(message), 1024)]
            for i, piece in enumerate(pieces):
                opcode = 4 if len(pieces) == 1 else 0 if i == 0 else 2 if i == len(pieces) - 1 else 1
                frame = ethernet("10.0.0.1", "10.0.0.2", roce_send(0x22, psn, piece, opcode))
                capture.add(frame)
                if psn % 7 == 0:
                    capture.add(frame)  # seen twice
                psn += 1
            sent.append(message)
        capture.write(self.path)
        found = [m for m in messages(self.path) if m["layer"] in ("LLC", "CDC")]
        self.assertEqual(len(found), len(sent))
        self.assertFalse([m for m in found if "fault" in m])
        by_hex = messages("--hex", data="\n".join(m.hex() for m in sent).encode())
        self.assertEqual([m["fields"] for m in found], [m["fields"] for m in by_hex])
        counters = [json.loads(line) for line in decode("--summary", "--json", self.path).stdout.splitlines()][-1]
        self.assertEqual((counters["retransmissions"], counters["gaps"]), ((psn + 6) // 7, 0))

    def test_what_is_refused_is_told_and_counted(self):
        capture = Capture()
        self.link(capture)
        for psn, syndrome in ((7, 0x1F), (8, 0x62), (9, 0x61), (10, 0x2C)):
            capture.add(ethernet("10.0.0.2", "10.0.0.1", roce_answer(0x11, psn, syndrome)))
        capture.add(ethernet("10.0.0.2", "10.0.0.1", roce_answer(0x99, 1, 0x62)))  # no queue pair of SMC
        capture.write(self.path)
        told = [m for m in messages("--rdma", self.path) if m["layer"] == "RDMA"]
        self.assertEqual(
            [(m["type"], m["fields"]) for m in told],
            [
                ("ACK", {"psn": 7}),
                ("NAK", {"psn": 8, "code": 2, "code_text": "remote access error"}),
                ("NAK", {"psn": 9, "code": 1, "code_text": "invalid request"}),
                ("RNR NAK", {"psn": 10, "timer": 12}),
            ],
        )
        self.assertEqual((told[0]["from"], told[0]["to"]), ("10.0.0.2 qp 0x000022", "10.0.0.1 qp 0x000011"))
        self.assertFalse([m for m in messages(self.path) if m["layer"] == "RDMA"])
        counters = [json.loads(line) for line in decode("--summary", "--json", self.path).stdout.splitlines()][-1]
        self.assertEqual((counters["naks"], counters["rnr_naks"]), (2, 1))

    def test_every_frame_that_is_not_looked_at_is_counted_under_its_reason(self):
        capture = Capture()
        a, b, link = "10.0.0.1", "10.0.0.2", Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
        capture.add(bytes(link / ARP(pdst=b)))
        capture.add(bytes(link / IP(src=a, dst=b, flags="MF") / UDP(dport=4791) / bytes(64)))
        capture.add(bytes(link / IP(src=a, dst=b, frag=8, proto=17) / bytes(64)))
        capture.add(bytes(link / IPv6() / IPv6ExtHdrFragment(m=1, nh=17) / bytes(64)))
        capture.add(bytes(link / IP(src=a, dst=b, proto=47) / bytes(64)))
        capture.add(bytes(link / IP(src=a, dst=b) / IP(src=a, dst=b) / UDP() / bytes(64)))
        for port in (4789, 6081):
            capture.add(bytes(link / IP(src=a, dst=b) / UDP(dport=port) / bytes(64)))
        capture.add(bytes(link / IP(src=a, dst=b) / ICMP()))
        capture.add(bytes(link / IP(src=a, dst=b) / UDP(dport=53) / bytes(64)))
        capture.add(bytes(link / IP(src=a, dst=b))[:30])
        capture.add(b"short")
        Connection(capture)  # the decoder reads this one
        capture.write(self.path)
        counters = [json.loads(line) for line in decode("--summary", "--json", self.path).stdout.splitlines()][-1]
        reasons = ("not_ip", "fragments", "tunnels", "other_protocols", "broken_frames")
        self.assertEqual([counters[reason] for reason in reasons], [1, 3, 4, 2, 2])
        told = decode(self.path).stderr.decode()
        self.assertIn("4 frames not looked at: in a tunnel (IP in IP, GRE, VXLAN, GENEVE)", told)

    def test_option_254_is_told_apart_from_other_experiments(self):
        capture = Capture()
        longer = bytes.fromhex("fe08e2d4c3d90102")
        Connection(capture, options=bytes.fromhex("fe0612345678"), answer=b"")
        Connection(capture, port=2000, options=bytes.fromhex("fe04f989") + longer, answer=bytes.fromhex("fe06e2d4c3c4"))
        capture.write(self.path)
        asked, answered = messages(self.path)
        unknown = [{"offset": 6, "bytes": "0x0102"}]
        self.assertEqual((asked["frame"], asked["fields"]["length"], asked["fields"]["unknown_bytes"]), (3, 8, unknown))
        self.assertEqual((answered["frame"], answered["fields"]["exid"]), (4, "SMCD"))
        self.assertFalse("fault" in asked or "fault" in answered)

    def test_a_clc_message_that_is_longer_than_is_kept_is_named(self):
        capture = Capture()
        connection = Connection(capture)
        connection.client(bytes.fromhex("e2d4c3d901") + (5000).to_bytes(2, "big") + b"\x20" + bytes(1000))
        capture.write(self.path)
        self.assertEqual(clc(self.path), [])
        self.assertIn("a CLC message of 5000 bytes", decode("--summary", self.path).stdout.decode())

    def test_cdc_as_tshark_sees_it(self):
        capture = Capture()
        self.link(capture)
        for psn, message in enumerate(sample("cdc", count=200)):
            capture.add(ethernet("10.0.0.1", "10.0.0.2", roce_send(0x22, psn, message)))
        capture.write(self.path)
        theirs, total = tshark.dissect(self.path), 0
        for message in (m for m in messages(self.path) if m["layer"] == "CDC"):
            if message["frame"] in theirs:
                different, compared = tshark.compare(message, theirs[message["frame"]])
                self.assertEqual(different, [])
                total += compared
        self.assertGreater(total, 1000)

    def test_streams_are_put_in_order(self):
        whole = sample("clc", kind=1, count=50)[0]
        for client, server in (("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")):
            capture = Capture()
            connection = Connection(capture, client, server)
            start = connection.next[0]
            order = [2, 0, 1, 1, 0] + list(range(3, len(whole) // 20 + 1))
            for i in order:
                connection.next[0] = start + i * 20
                connection.client(whole[i * 20 : i * 20 + 25])  # overlaps the next
            capture.write(self.path)
            self.assertEqual([m["type"] for m in clc(self.path)], ["PROPOSAL"])

    def test_other_link_layers_and_file_formats(self):
        subprocess.run(["editcap", "-F", "pcapng", CONTACT, self.path], check=True, stderr=subprocess.DEVNULL)
        self.assertEqual(messages(self.path), messages(CONTACT))
        with open(CONTACT, "rb") as file:
            data = file.read()
        self.assertEqual(messages("-", data=data), messages(CONTACT))
        self.assertEqual(messages(data=data), messages(CONTACT))
        capture = Capture(link_type=276)  # Linux cooked 2, as "tcpdump -i any" writes it
        made = Capture()
        connection = Connection(made)
        connection.client(sample("clc", kind=1, count=50)[0])
        for frame in made.frames:
            capture.add(frame[12:14] + bytes(18) + frame[14:])
        capture.write(self.path)
        self.assertEqual([m["type"] for m in clc(self.path)], ["PROPOSAL"])

    def test_difficult_files_as_tshark_sees_them(self):
        with open(CONTACT, "rb") as file:
            plain = file.read()
        cooked = Capture(link_type=113)
        late = Capture()
        reader = RawPcapReader(CONTACT)
        self.addCleanup(reader.close)
        for frame, _ in reader:
            (cooked if len(cooked.frames) < 40 else late).add(frame)
        cooked.frames = [b"\0\0\0\1\0\6" + f[6:12] + b"\0\0" + f[12:] for f in cooked.frames]
        parts = [os.path.join(self.dir.name, name) for name in ("first.pcap", "second.pcap")]
        cooked.write(parts[0])
        late.write(parts[1])
        two_types = os.path.join(self.dir.name, "two-types.pcapng")
        subprocess.run(["mergecap", "-a", "-F", "pcapng", "-w", two_types, *parts], check=True)
        compressed = os.path.join(self.dir.name, "plain.pcap.gz")
        with open(compressed, "wb") as file:
            file.write(gzip.compress(plain))
        for path, expected in ((two_types, 45), (compressed, 45), (parts[1], 38)):
            theirs = tshark.dissect(path)
            ours = {m["frame"] for m in messages(path) if m["layer"] in ("CLC", "CDC")}
            self.assertEqual((ours, len(ours)), (set(theirs), expected), path)

    def test_a_declined_connection_of_an_application_that_sends_clc(self):
        capture = Capture()
        connection = Connection(capture)
        proposal = sample("clc", kind=1, count=50)[0]
        connection.client(proposal)
        connection.server(bytes.fromhex("e2d4c3d904001c10" "0000000000000001" "03010000" "00000000" "e2d4c3d9"))
        connection.client(proposal)
        connection.client(b"", "FA")
        capture.write(self.path)
        self.assertEqual([m["type"] for m in clc(self.path)], ["PROPOSAL", "DECLINE"])


class Broken(unittest.TestCase):
    def assert_fails(self, done, text):
        self.assertEqual(done.returncode, 1, done)
        self.assertIn(text, done.stderr.decode())
        self.assertTrue(done.stderr.startswith(b"Error: "))

    def test_what_could_be_read_then_an_error(self):
        with open(CONTACT, "rb") as file:
            data = file.read()
        whole = messages(CONTACT)
        for cut in range(0, len(data), 997):
            done = decode("--json", data=data[:cut])
            lines = [json.loads(line) for line in done.stdout.splitlines()]
            self.assertEqual(lines, whole[: len(lines)])
            if done.returncode == 0:
                continue  # cut between two frames
            self.assert_fails(done, "standard input: ")
        self.assert_fails(decode(data=data[:5000]), "truncated")
        self.assert_fails(decode(data=b"GET / HTTP/1.0\r\n" * 10), "unknown file format")
        self.assert_fails(decode(data=b""), "standard input: ")
        self.assert_fails(decode("/nonexistent.pcap"), "No such file or directory")
        self.assert_fails(decode("/"), "Is a directory")
        wireless = Capture(link_type=105)
        wireless.add(bytes(30))
        with tempfile.NamedTemporaryFile() as file:
            wireless.write(file.name)
            self.assert_fails(decode(file.name), "link layer IEEE802_11 is not one of")
        for whole in (gzip.compress(data), gzip.compress(data)[:-9]):
            done = decode("--json", data=whole)
            self.assertEqual([json.loads(line) for line in done.stdout.splitlines()], messages(CONTACT))
        self.assert_fails(done, "truncated")
        summary = decode("--summary", data=data[:5000])
        self.assertIn(b"connection 10.9.0.2:36732", summary.stdout)
        self.assert_fails(summary, "truncated")

    def test_hex(self):
        decline = "e2 d4 c3 d9 04 00:1c:10 0000000000000001 0x03010000 00000000 e2d4c3d9"
        self.assertEqual(messages("--hex", data=decline.encode())[0]["type"], "DECLINE")
        self.assertEqual(messages("--hex", data=b"fe06e2d4c3d9\n\n")[0]["type"], "OPTION 254")
        done = decode("--hex", "--json", data=("zz\n" + decline + "\nabc\n").encode())
        self.assertEqual(len(done.stdout.splitlines()), 1)
        self.assert_fails(done, "line 1 is not hexadecimal")
        self.assertIn(b"line 3 is not hexadecimal", done.stderr)
        wrong = decode("--hex", "--json", data=decline.replace("1c", "1d").encode())
        self.assertEqual(wrong.returncode, 1)
        shown = json.loads(wrong.stdout)
        self.assertEqual(shown["fields"]["sender_diagnosis_information"], 0x03010000)
        fault = shown["fault"]
        self.assertEqual(
            (fault["field"], fault["offset"], fault["found"], fault["verdict"]),
            ("clc_message_length", 5, 29, "treat as data"),
        )
        told = decode("--hex", data=decline.replace("1c", "1d").encode()).stdout
        self.assertRegex(told, rb"clc_message_length +29  <- wrong: expected a valid length")
        reserved = messages("--hex", data=decline.replace("00000000 e2", "00000100 e2").encode())[0]
        self.assertEqual(reserved["fields"]["unknown_bytes"], [{"offset": 22, "bytes": "0x01"}])

    def test_usage(self):
        for arguments in (["--hex", "--summary"], ["one", "two"], ["--nonsense"]):
            self.assertEqual(decode(*arguments, data=b"").returncode, 2)

    def test_output_that_cannot_be_written(self):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([CTL, "decode", CONTACT], stdout=full, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"cannot write", done.stderr)

    def test_hostile_texts_do_not_reach_the_terminal(self):
        capture = Capture()
        connection = Connection(capture)
        with open(os.path.join(CAPTURES, "linux-messages.hex")) as file:
            proposal = bytearray.fromhex(next(line.split()[2] for line in file if "contact 12 " in line))
        proposal[120:152] = b"\x1b[2J\x1b]0;pwn\x07\n  ended".ljust(32, b"\x01")
        connection.client(bytes(proposal))
        with tempfile.NamedTemporaryFile() as file:
            capture.write(file.name)
            for options in ([], ["--summary"], ["--json"]):
                out = decode(*options, file.name).stdout
                self.assertFalse(set(out) & (set(range(32)) - {10} | {127}), options)
                self.assertNotIn(b"\n  ended       pwn", out)

    def test_a_line_without_end_is_bounded(self):
        done = decode("--hex", data=b"e2" * 200000 + b"\nfe06e2d4c3d9\n")
        self.assert_fails(done, "line 1 is longer than 65536 characters")
        self.assertIn(b"OPTION 254", done.stdout)

    def test_a_reader_that_goes_away(self):
        done = subprocess.run(
            f"'{CTL}' decode '{CONTACT}' | head -n 1",
            shell=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=20,
        )
        self.assertTrue(done.stdout.startswith(b"frame 9 "))
        self.assertEqual(done.stderr, b"")


if __name__ == "__main__":
    unittest.main()
