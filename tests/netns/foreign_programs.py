# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Programs in several languages, and configurations of servers, for foreign_test.py."""

# HTTP clients: "ranges" of a file, "files" that are put and got, or posted data that comes back ("echo").
NODE_CLIENT = """
const http = require('http'), noise = require('fs').readFileSync('noise');
const [host, port, how, ...sizes] = process.argv.slice(1), agent = new http.Agent({keepAlive: true, maxSockets: 3});
const ask = (method, path, body, headers = {}) => new Promise((good, bad) => {
    headers['Content-Length'] = body.length;
    const q = http.request({host, port, agent, method, path, headers, timeout: 5000}, s => {
        const parts = [];
        s.on('data', d => parts.push(d));
        s.on('end', () => s.statusCode < 300 ? good(Buffer.concat(parts)) : bad(new Error(`${path}: ${s.statusCode}`)));
    });
    q.on('error', bad);
    q.on('timeout', () => bad(new Error(`${method} ${path}, ${body.length} B: no answer`)));
    q.end(body);
});
const ways = {
    ranges: (name, at, piece) => ask('GET', '/noise', '', {Range: `bytes=${at}-${at + piece.length - 1}`}),
    files: (name, at, piece) => ask('PUT', name, piece).then(() => ask('GET', name, '')),
    echo: (name, at, piece) => ask('POST', '/', piece),
};
let n = 0, stop = false;
const work = async name => {
    do for (const size of sizes) {
        const at = n++ * 7919 % (1 << 20), piece = noise.subarray(at, at + Number(size));
        if (!(await ways[how](name, at, piece)).equals(piece)) throw new Error(`${size} B from ${at} are wrong`);
        if (n % 5 == 0) await new Promise(done => setTimeout(done, n % 7));
    } while (!stop);
};
process.stdin.on('data', () => stop = true);
Promise.all(['/1', '/2', '/3'].map(work)).then(() => { console.log(`${n} good`); process.exit(0); });
"""

# nginx sends no more to a server that answers before it has received the whole request.
NODE_SERVER = """
require('http').createServer((q, s) => {
    const parts = [];
    q.on('data', d => parts.push(d));
    q.on('end', () => s.end(Buffer.concat(parts)));
}).listen(process.argv[1]);
"""

ASYNCIO_SERVER = """
import asyncio, sys
async def echo(reader, writer):
    while data := await reader.read(65536):
        writer.write(data); await writer.drain()
    writer.close()
async def main():
    server = await asyncio.start_server(echo, '0.0.0.0', int(sys.argv[1]))
    await server.serve_forever()
asyncio.run(main())
"""

ASYNCIO_CLIENT = """
import asyncio, sys, threading
stop = threading.Event()
threading.Thread(target=lambda: (sys.stdin.readline(), stop.set()), daemon=True).start()
noise = open('noise', 'rb').read()
async def main():
    reader, writer = await asyncio.open_connection(sys.argv[1], int(sys.argv[2]))
    n = 0
    while n == 0 or not stop.is_set():
        for size in map(int, sys.argv[3:]):
            at = n * 7919 % (1 << 20); piece = noise[at:at + size]; n += 1
            writer.write(piece)
            _, came = await asyncio.wait_for(asyncio.gather(writer.drain(), reader.readexactly(size)), 5)
            assert came == piece, (size, at)
            if n % 5 == 0: await asyncio.sleep(n % 7 / 1000)
    print(n, 'good')
asyncio.run(main())
"""

WAITING_CLIENT = """
import socket, sys, threading, time
stop = threading.Event()
threading.Thread(target=lambda: (sys.stdin.readline(), stop.set()), daemon=True).start()
noise = open('noise', 'rb').read()
c = socket.create_connection((sys.argv[1], int(sys.argv[2]))); c.settimeout(None)
n = 0
while n == 0 or not stop.is_set():
    for size in map(int, sys.argv[3:]):
        at = n * 7919 % (1 << 20); piece = noise[at:at + size]; n += 1
        sender = threading.Thread(target=c.sendall, args=(piece,)); sender.start()
        came = b''
        while len(came) < size: came += c.recv(size - len(came))
        sender.join()
        assert came == piece, (size, at)
        if n % 5 == 0: time.sleep(n % 7 / 1000)
print(n, 'good')
"""

# Posts pieces and gets them back, with the checksum of the bytes that the server has received.
GO = """
package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	check(err)
	w.Header().Set("Sum", fmt.Sprintf("%x", sha256.Sum256(body)))
	w.Write(body)
}

func ask(client *http.Client, url string, piece []byte) {
	answer, err := client.Post(url, "application/octet-stream", bytes.NewReader(piece))
	check(err)
	body, err := io.ReadAll(answer.Body)
	check(err)
	check(answer.Body.Close())
	sum := fmt.Sprintf("%x", sha256.Sum256(piece))
	if fmt.Sprintf("%x", sha256.Sum256(body)) != sum || answer.Header.Get("Sum") != sum {
		panic(fmt.Sprint(len(piece), " B are wrong"))
	}
}

func main() {
	if os.Args[1] == "serve" {
		check(http.ListenAndServe(":"+os.Args[2], http.HandlerFunc(echo)))
	}
	noise, err := os.ReadFile("noise")
	check(err)
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 3}}
	var n, stop int64
	var all sync.WaitGroup
	for i := 0; i < 3; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for once := true; once || atomic.LoadInt64(&stop) == 0; once = false {
				for _, arg := range os.Args[3:] {
					size, _ := strconv.Atoi(arg)
					k := int(atomic.AddInt64(&n, 1))
					at := k * 7919 % (1 << 20)
					ask(client, "http://"+os.Args[2], noise[at:at+size])
					if k%5 == 0 {
						time.Sleep(time.Duration(k%7) * time.Millisecond)
					}
				}
			}
		}()
	}
	os.Stdin.Read(make([]byte, 1))
	atomic.StoreInt64(&stop, 1)
	all.Wait()
	fmt.Println(n, "good")
}
"""

# Uses one selector, or ("wait") a blocking thread: "serve PORT", "ask HOST PORT SIZES", "wait HOST PORT SIZES".
JAVA = """
import java.net.*;
import java.nio.ByteBuffer;
import java.nio.channels.*;
import java.nio.file.*;
import java.util.*;

public class Echo {
    static volatile boolean stop;

    static void serve(int port) throws Exception {
        Selector selector = Selector.open();
        ServerSocketChannel listener = ServerSocketChannel.open().bind(new InetSocketAddress("0.0.0.0", port));
        listener.configureBlocking(false);
        listener.register(selector, SelectionKey.OP_ACCEPT);
        while (true) {
            selector.select();
            for (SelectionKey key : selector.selectedKeys()) {
                if (key.isAcceptable()) {
                    SocketChannel accepted = listener.accept();
                    accepted.configureBlocking(false);
                    accepted.register(selector, SelectionKey.OP_READ, ByteBuffer.allocateDirect(65536));
                    continue;
                }
                SocketChannel channel = (SocketChannel) key.channel();
                ByteBuffer buffer = (ByteBuffer) key.attachment();
                if (key.isReadable() && channel.read(buffer) < 0) {
                    channel.close();
                    continue;
                }
                buffer.flip();
                channel.write(buffer);
                buffer.compact();
                key.interestOps((buffer.hasRemaining() ? SelectionKey.OP_READ : 0)
                                | (buffer.position() > 0 ? SelectionKey.OP_WRITE : 0));
            }
            selector.selectedKeys().clear();
        }
    }

    static byte[] exchange(Selector selector, SocketChannel channel, byte[] piece) throws Exception {
        ByteBuffer out = ByteBuffer.wrap(piece), in = ByteBuffer.allocate(piece.length);
        while (in.hasRemaining()) {
            channel.keyFor(selector).interestOps(SelectionKey.OP_READ
                                                 | (out.hasRemaining() ? SelectionKey.OP_WRITE : 0));
            if (selector.select(5000) == 0) throw new Exception("stuck: " + out + " " + in);
            selector.selectedKeys().clear();
            if (out.hasRemaining()) channel.write(out);
            if (channel.read(in) < 0) throw new Exception("an end");
        }
        return in.array();
    }

    static byte[] exchangeWaiting(Socket socket, byte[] piece) throws Exception {
        Thread sender = new Thread(() -> {
            try { socket.getOutputStream().write(piece); } catch (Exception e) { e.printStackTrace(); }
        });
        sender.start();
        byte[] came = socket.getInputStream().readNBytes(piece.length);
        sender.join();
        return came;
    }

    public static void main(String[] args) throws Exception {
        if (args[0].equals("serve")) serve(Integer.parseInt(args[1]));
        byte[] noise = Files.readAllBytes(Path.of("noise"));
        InetSocketAddress server = new InetSocketAddress(args[1], Integer.parseInt(args[2]));
        Selector selector = Selector.open();
        SocketChannel channel = null;
        Socket socket = null;
        if (args[0].equals("ask")) {
            channel = SocketChannel.open(server);
            channel.configureBlocking(false);
            channel.register(selector, 0);
        } else {
            socket = new Socket(server.getAddress(), server.getPort());
        }
        new Thread(() -> { try { System.in.read(); stop = true; } catch (Exception e) { } }).start();
        int n = 0;
        do {
            for (int i = 3; i < args.length; i++, n++) {
                int at = (int) (n * 7919L % (1 << 20));
                byte[] piece = Arrays.copyOfRange(noise, at, at + Integer.parseInt(args[i]));
                byte[] came = socket == null ? exchange(selector, channel, piece) : exchangeWaiting(socket, piece);
                if (!Arrays.equals(piece, came)) throw new Exception(piece.length + " B from " + at + " are wrong");
                if (n % 5 == 0) Thread.sleep(n % 7);
            }
        } while (!stop);
        System.out.println(n + " good");
        System.exit(0);
    }
}
"""

NGINX = """
daemon off; master_process off; user root; pid nginx-{port}.pid; error_log stderr;
events {{ worker_connections 512; }}
http {{
    access_log off; sendfile on; keepalive_requests 1000000; client_max_body_size 2m;
    client_body_temp_path body-{port}; proxy_temp_path proxy-{port}; fastcgi_temp_path none; uwsgi_temp_path none;
    scgi_temp_path none;
    {more}
}}
"""
FILES = "server {{ listen {port}; root www; dav_methods PUT; max_ranges 1; }}"
PROXY = """
upstream behind {{ server {ip}:{behind}; keepalive 4; }}
server {{
    listen {port};
    location / {{ proxy_pass http://behind; proxy_http_version 1.1; proxy_set_header Connection ""; }}
}}
"""

HAPROXY = """
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
listen web
    bind 0.0.0.0:{port}
    http-reuse always
    server behind {ip}:{behind}
"""
