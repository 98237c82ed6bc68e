# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""A stand-in for the Kubernetes API server: lists and watches of pods and namespaces, as the real server sends them.

https with a bearer token; lists in pages (limit, continue); watches that stream one JSON object a line, from a
resourceVersion on, with bookmarks; 410 for what has been forgotten; field selectors on spec.nodeName; only metadata,
if the client asks for that. It can refuse, cut watches off, and forget its history.
"""
import contextlib
import http.server
import json
import os
import ssl
import subprocess
import threading
import time
import urllib.parse

TOKEN = "a-token-of-this-node"
PATHS = {"/api/v1/pods": "pods", "/api/v1/namespaces": "namespaces"}


class ApiServer:
    def __init__(self, directory):
        self.lock = threading.Condition()
        self.version = 100
        self.objects = {"pods": {}, "namespaces": {}}  # by (namespace, name)
        self.history = {"pods": [], "namespaces": []}  # (version, type, object)
        self.forgotten = 0  # watches from before this version are told 410
        self.refuse = None  # a status for every request
        self.lies = None  # "deep": each answer is nested without end; "long": a list never ends
        self.refuse_pages = 0  # how many requests for further pages of a list to refuse
        self.wrong = set()  # kinds whose watches end by an error until they are listed again
        self.fails = None  # a message: every watch ends by an error with it
        self.began = []  # when each watch of pods began
        self.cuts = 0  # number of cuts; each ends the watches that began before it
        self.requests = []
        self.closing = False
        self.ca = os.path.join(directory, "ca.crt")
        self.token = os.path.join(directory, "token")
        key = os.path.join(directory, "key.pem")
        with open(self.token, "w") as file:
            file.write(TOKEN + "\n")
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
                *("-keyout", key, "-out", self.ca, "-days", "2", "-subj", "/CN=stand-in"),
                *("-addext", "subjectAltName=IP:127.0.0.1"),
            ],
            check=True,
            capture_output=True,
        )
        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self.handler())
        self.http.daemon_threads = True
        self.http.handle_error = lambda *_: None  # clients that close, or do not trust its certificate
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.ca, key)
        self.http.socket = context.wrap_socket(self.http.socket, server_side=True, do_handshake_on_connect=False)
        self.thread = threading.Thread(target=self.http.serve_forever, daemon=True)
        self.thread.start()

    @property
    def url(self):
        return f"https://127.0.0.1:{self.http.server_address[1]}"

    def close(self):
        with self.lock:
            self.closing = True
            self.lock.notify_all()
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()

    # --- what the test does to the cluster -------------------------------------------------------------------
    def put(self, kind, name, namespace="", node="node-a", uid=None, labels=None, annotations=None):
        with self.lock:
            known = (namespace, name) in self.objects[kind]
            self.version += 1
            metadata = {"name": name, "resourceVersion": str(self.version), "uid": uid or f"uid-of-{name}"}
            if namespace:
                metadata["namespace"] = namespace
            metadata.update(labels=labels or {}, annotations=annotations or {})
            one = {"metadata": metadata, "spec": {"nodeName": node}}
            self.objects[kind][namespace, name] = one
            self.history[kind].append((self.version, "MODIFIED" if known else "ADDED", one))
            self.lock.notify_all()

    def delete(self, kind, name, namespace=""):
        with self.lock:
            self.version += 1
            one = self.objects[kind].pop((namespace, name))
            one["metadata"]["resourceVersion"] = str(self.version)
            self.history[kind].append((self.version, "DELETED", one))
            self.lock.notify_all()

    def forget(self):
        """Forgets the history, as etcd's compaction does: open watches are told, and none can begin before now."""
        with self.lock:
            self.version += 1
            self.forgotten = self.version
            self.history = {"pods": [], "namespaces": []}
            self.lock.notify_all()

    def go_wrong(self):
        """Open watches end, and watches that continue from there end by an error."""
        with self.lock:
            self.wrong = set(self.objects)
            self.cuts += 1
            self.lock.notify_all()

    def cut(self):
        with self.lock:
            self.cuts += 1
            self.lock.notify_all()

    # --- what the server does ----------------------------------------------------------------------------------
    def handler(server):
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                url = urllib.parse.urlsplit(self.path)
                query = dict(urllib.parse.parse_qsl(url.query))
                with server.lock:
                    server.requests.append((url.path, query))
                    refuse = server.refuse
                kind = PATHS.get(url.path)
                if server.lies == "deep":
                    return self.send(200, b'{"items": ' + b'[{"a":' * 60000 + b"0" + b"}]" * 60000 + b"}")
                if server.lies == "long" and not query.get("watch"):
                    items = [{"metadata": {"name": "x" * 250, "annotations": {"a": "y" * 200_000}}}] * 20
                    return self.answer(200, {"metadata": {"continue": "more", "resourceVersion": "1"}, "items": items})
                if refuse or kind is None or self.headers.get("Authorization") != f"Bearer {TOKEN}":
                    return self.answer(refuse or (404 if kind is None else 401), {"kind": "Status"})
                with contextlib.suppress(BrokenPipeError, ConnectionResetError, ssl.SSLError):
                    self.watch(kind, query) if query.get("watch") else self.list(kind, query)

            def answer(self, status, body):
                self.send(status, json.dumps(body).encode())

            def send(self, status, data):
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def wanted(self, one, query):
                selector = query.get("fieldSelector", "")
                return not selector or selector == f"spec.nodeName={one['spec']['nodeName']}"

            def shown(self, one):
                partial = "as=PartialObjectMetadata" in self.headers.get("Accept", "")
                return {key: value for key, value in one.items() if key == "metadata" or not partial}

            def list(self, kind, query):
                limit, start = int(query.get("limit", 10**9)), int(query.get("continue", 0))
                with server.lock:
                    if start and server.refuse_pages:
                        server.refuse_pages -= 1
                        return self.answer(503, {"kind": "Status"})
                    server.wrong.discard(kind)
                    found = [one for one in server.objects[kind].values() if self.wanted(one, query)]
                    metadata = {"resourceVersion": str(server.version)}
                    if start + limit < len(found):
                        metadata["continue"] = str(start + limit)
                    items = [self.shown(one) for one in found[start : start + limit]]
                self.answer(200, {"kind": "List", "metadata": metadata, "items": items})

            def chunk(self, event):
                data = json.dumps(event).encode() + b"\n"
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                self.wfile.flush()

            def watch(self, kind, query):
                seen, cuts = int(query["resourceVersion"]), server.cuts
                if seen < server.forgotten:
                    return self.answer(410, {"kind": "Status", "code": 410})
                self.send_response(200)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                if kind == "pods":
                    server.began.append(time.monotonic())
                if kind in server.wrong or server.fails is not None:
                    message = server.fails or "etcd is gone"
                    self.chunk({"type": "ERROR", "object": {"kind": "Status", "code": 500, "message": message}})
                    self.wfile.write(b"0\r\n\r\n")
                    return
                while True:
                    with server.lock:
                        news = [entry for entry in server.history[kind] if entry[0] > seen]
                        expired = seen < server.forgotten
                        if not news and not expired and not server.closing and cuts == server.cuts:
                            server.lock.wait(5)
                            if not server.history[kind]:
                                continue
                            news = [entry for entry in server.history[kind] if entry[0] > seen]
                    if server.closing or cuts != server.cuts:
                        self.close_connection = True
                        return  # without the last chunk: it was cut off
                    if expired:
                        self.chunk({"type": "ERROR", "object": {"kind": "Status", "code": 410}})
                        self.wfile.write(b"0\r\n\r\n")
                        return
                    for version, what, one in news:
                        seen = version
                        if self.wanted(one, query):
                            self.chunk({"type": what, "object": self.shown(one)})
                    if not news:
                        bookmark = {"metadata": {"resourceVersion": str(server.version)}}
                        self.chunk({"type": "BOOKMARK", "object": bookmark})

        return Handler
