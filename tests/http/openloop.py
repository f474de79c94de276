"""Requests that are sent when their time has come, whether earlier ones are answered or not.

The client shares the processor with the server that it measures, so it does little: bodies are made
before, and headers are read afterwards.
"""
import json
import select
import socket
import time


class Answer:
    """Of one request: its body, how long it took from when it was due, when it came (in seconds from
    the beginning), and the reply."""

    def __init__(self, body, seconds, at, reply):
        self.body, self.seconds, self.at = body, seconds, at
        head, _, self.text = reply.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        self.status = int(lines[0].split()[1])
        self.headers = dict(line.lower().split(": ", 1) for line in lines[1:])

    def json(self):
        return json.loads(self.text)


# Each is one token of BERT's vocabulary: all texts have as many tokens, whatever number they are.
WORDS = ("time year people way day man thing woman life child world school state family student group "
         "country problem hand part place case week company system program question work government "
         "number night point").split()


def words(number):
    """The number in 32 digits."""
    return " ".join(WORDS[number >> shift & 31] for shift in (20, 15, 10, 5, 0))


def bodies(n, n_texts, series):
    """n requests of equal work, of which no two have a text in common, nor have those of two series
    (0 to 31)."""
    assert n * n_texts <= 1 << 20 and series < 32
    return [json.dumps({"encoding_format": "base64", "input": [
        "%s %s of some words about dogs in parks and cats on roofs" % (
            WORDS[series], words(number * n_texts + i)) for i in range(n_texts)]}).encode()
            for number in range(n)]


def requests(source):
    head = (b"POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n")
    return [head % len(body) + body for body in source]


class Connection:
    def __init__(self, server):
        # A server may say which address its client has (benchmarks/http/fairness.py).
        self.socket = socket.create_connection((server.host, server.port), timeout=60,
                                               source_address=getattr(server, "source", None))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, number, request, due):
        self.number, self.due, self.got, self.size = number, due, b"", None
        self.socket.sendall(request)

    def read(self):
        """Whether the whole reply is there."""
        more = self.socket.recv(1 << 18)
        if not more:
            raise ConnectionError("the server has closed the connection after %r" % self.got[:200])
        self.got += more
        if self.size is None:
            end = self.got.find(b"\r\n\r\n")
            if end >= 0:
                at = self.got.index(b"Content-Length: ") + 16
                self.size = end + 4 + int(self.got[at:self.got.index(b"\r", at)])
        return self.size is not None and len(self.got) >= self.size


class Client:
    """Kept connections; each answer is kept as bytes until the end."""

    def __init__(self, server, source):
        self.server, self.source, self.requests = server, source, requests(source)
        self.free, self.busy, self.done, self.n_sent = [], {}, [], 0
        self.poll, self.started = select.epoll(), time.perf_counter()

    def send(self, due):
        if self.free:
            one = self.free.pop()
        else:
            one = Connection(self.server)
            self.poll.register(one.socket, select.EPOLLIN)
        self.busy[one.socket.fileno()] = one
        one.send(self.n_sent, self.requests[self.n_sent], due)
        self.n_sent += 1

    def receive(self, timeout):
        """How many answers have come."""
        n_before = len(self.done)
        for number, _ in self.poll.poll(max(0, timeout)):
            one = self.busy[number]
            if one.read():
                now = time.perf_counter()
                self.done.append((one.number, now - one.due, now - self.started, one.got))
                self.free.append(self.busy.pop(number))
        return len(self.done) - n_before

    def answers(self):
        for one in self.free:
            one.socket.close()
        self.poll.close()
        return [Answer(self.source[number], *rest) for number, *rest in self.done]


def closed(server, source, n_clients, seconds):
    """Clients that ask again as soon as they have an answer, for this number of seconds or until `source` is
    used up; all answers, and for how long they asked."""
    client, asked = Client(server, source), seconds
    for _ in range(n_clients):
        client.send(time.perf_counter())
    while client.busy:
        for _ in range(client.receive(60)):
            now = time.perf_counter()
            if now - client.started >= seconds:
                continue
            if client.n_sent < len(source):
                client.send(now)
            else:
                asked = min(asked, now - client.started)
    return client.answers(), asked


def opened(server, source, rate):
    """All of `source`, `rate` requests a second, evenly; all answers, and for how long it sent."""
    client = Client(server, source)
    for i in range(len(source)):
        due = client.started + i / rate
        while True:
            left = due - time.perf_counter()
            client.receive(left)
            if left <= 0:
                break
        client.send(due)
    asked = time.perf_counter() - client.started
    while client.busy:
        client.receive(60)
    return client.answers(), asked
