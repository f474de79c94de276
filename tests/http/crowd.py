#!/usr/bin/env python3
"""Slow clients, as many as wanted, until standard input ends: crowd.py HOST PORT header|body|reader N

A client that the server disconnects is replaced, so that N are connected all the time; readers at most
20 a second, since the server computes their replies (8,002 tokens, 500 kB). Prints "ready" when
N are connected, and at the end the number of disconnections.

header  a header that grows by a line each second and never ends
body    a body of which a byte comes each second
reader  asks for a long reply, made for it alone, and reads some bytes each second
"""
import select
import socket
import sys
import time

REQUEST = b"%s %s HTTP/1.1\r\nHost: localhost\r\n"
FIRST = {"header": REQUEST % (b"GET", b"/health"),
         "body": REQUEST % (b"POST", b"/embed") + b"Content-Length: 100000\r\n\r\n{",
         "reader": REQUEST % (b"POST", b"/tokenize") + b"Content-Length: 16013\r\n\r\n" +
                   b'{"inputs":"%s"}' % (b"a b " * 4000)}
DRIP = {"header": b"X-a: b\r\n", "body": b" ", "reader": b""}
REPLACED = {"header": 1000, "body": 1000, "reader": 20}  # at most in a second
READ_BYTES = {"header": 4096, "body": 4096, "reader": 16}


class Crowd:
    def __init__(self, address, kind, n):
        self.address, self.kind, self.n = address, kind, n
        self.clients, self.poll, self.n_ended = {}, select.poll(), 0

    def add(self):
        client = socket.socket()
        if self.kind == "reader":
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        client.settimeout(60)
        client.connect(self.address)
        client.sendall(FIRST[self.kind])
        client.setblocking(False)
        self.clients[client.fileno()] = client
        self.poll.register(client, select.POLLRDHUP if self.kind == "reader" else select.POLLIN)

    def end(self, number):
        client = self.clients.pop(number)
        self.poll.unregister(client)
        client.close()
        self.n_ended += 1

    def is_over(self, client):
        """Reads a little; whether the server has ended it."""
        try:
            return client.recv(READ_BYTES[self.kind]) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def drip(self):
        for number, client in list(self.clients.items()):
            try:
                client.send(DRIP[self.kind])
            except BlockingIOError:
                pass
            except OSError:
                self.end(number)
                continue
            if self.kind == "reader" and self.is_over(client):
                self.end(number)

    def look(self):
        for number, _ in self.poll.poll(100):
            # what a reader has not read yet hides that it has been ended
            if self.kind == "reader" or self.is_over(self.clients[number]):
                self.end(number)

    def replace(self):
        for _ in range(min(self.n - len(self.clients), REPLACED[self.kind])):
            self.add()

    def run(self):
        for _ in range(self.n):
            self.add()
        print("ready", flush=True)
        last = time.monotonic()
        while not select.select([sys.stdin], [], [], 0)[0]:
            if time.monotonic() - last >= 1:
                last = time.monotonic()
                self.drip()
                self.replace()
            self.look()
        print(self.n_ended, flush=True)


if __name__ == "__main__":
    Crowd((sys.argv[1], int(sys.argv[2])), sys.argv[3], int(sys.argv[4])).run()
