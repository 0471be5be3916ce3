"""An endpoint that takes every POST and answers 204, for measurements only: python3 receiver.py

Loopback, port 0, which it prints; connections are kept as long as the other side keeps them. A GET is answered with how many
connections and POSTs there were.
"""
import re
import socket
import threading

counts = dict(connections=0, posts=0)
lock = threading.Lock()


def serve(connection):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    got = b""
    while True:
        while b"\r\n\r\n" not in got:
            more = connection.recv(65536)
            if not more:
                return connection.close()
            got += more
        head, got = got.split(b"\r\n\r\n", 1)
        length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
        missing = int(length.group(1)) if length else 0
        while len(got) < missing:
            got += connection.recv(65536)
        got = got[missing:]
        if head.startswith(b"GET"):
            said = b"%d %d" % (counts["connections"], counts["posts"])
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(said) + said)
            continue
        with lock:
            counts["posts"] += 1
        connection.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")


def receive():
    server = socket.create_server(("127.0.0.1", 0), backlog=128)
    print(server.getsockname()[1], flush=True)
    while True:
        connection = server.accept()[0]
        counts["connections"] += 1
        threading.Thread(target=serve, args=(connection,), daemon=True).start()


if __name__ == "__main__":
    receive()
