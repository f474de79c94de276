"""Raw bytes: what HTTP leaves no doubt about is answered, all else is refused with 400 and the end of
the connection (T6). After a refusal not one byte of what follows may be taken for a request."""
import json
import socket

from serving import Served, main

GOOD = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"
BODY = b'{"inputs":"a","dimensions":2}'


def post(*fields, body=BODY, path=b"/embed", version=b"HTTP/1.1"):
    return b"\r\n".join([b"POST " + path + b" " + version, b"Host: a", *fields, b"", body])


def length(n=len(BODY)):
    return b"Content-Length: %d" % n


def chunked(*parts, end=b"0\r\n\r\n"):
    return b"".join(b"%x\r\n%s\r\n" % (len(one), one) for one in parts) + end


CHUNKED = b"Transfer-Encoding: chunked"

# What is sent, and the status of each answer.
CASES = {
    # plain and less plain, but without doubt
    "good": (GOOD, [200]),
    "two in a row": (GOOD + GOOD, [200, 200]),
    "HTTP/1.0": (b"GET /health HTTP/1.0\r\n\r\n", [200]),
    "no space after the colon": (b"GET /health HTTP/1.1\r\nHost:a\r\n\r\n", [200]),
    "many spaces": (b"GET /health HTTP/1.1\r\nHost: \t  a \t\r\n\r\n", [200]),
    "post": (post(length()), [200]),
    "post and get": (post(length()) + GOOD, [200, 200]),
    "leading zeros": (post(b"Content-Length: 000%d" % len(BODY)), [200]),
    "chunks": (post(CHUNKED, body=chunked(BODY[:3], BODY[3:])) + GOOD, [200, 200]),
    "chunk size in capitals": (post(CHUNKED, body=b"1D\r\n" + BODY + b"\r\n0\r\n\r\n"), [200]),
    "empty chunks": (post(CHUNKED, body=chunked()), [400]),
    "query": (b"GET /health?a=b&c=%20 HTTP/1.1\r\nHost: a\r\n\r\n", [200]),
    "unknown method": (b"BREW /health HTTP/1.1\r\nHost: a\r\n\r\n", [405]),
    "escaped path": (b"GET /heal%74h HTTP/1.1\r\nHost: a\r\n\r\n", [200]),
    "escaped NUL": (b"GET /health%00 HTTP/1.1\r\nHost: a\r\n\r\n", [400]),
    "escaped DEL": (b"GET /health%7f HTTP/1.1\r\nHost: a\r\n\r\n", [400]),
    "broken escape": (b"GET /health%2 HTTP/1.1\r\nHost: a\r\n\r\n", [400]),
    "escaped non-UTF-8": (b"GET /%ff HTTP/1.1\r\nHost: a\r\n\r\n", [400]),
    "beginnings of names": (b"GET /health HTTP/1.1\r\nHost: a\r\nHos: b\r\nContent: c\r\nTransfer: d\r\n\r\n", [200]),
    "dots": (b"GET /../etc/passwd HTTP/1.1\r\nHost: a\r\n\r\n", [404]),
    # two readers would disagree about the end
    "two lengths": (post(length(), length()), [400]),
    "two differing lengths": (post(length(), length(1)), [400]),
    "lengths in one": (post(b"Content-Length: 29, 29"), [400]),
    "length and chunks": (post(length(), CHUNKED, body=chunked(BODY)), [400]),
    "chunks and length": (post(CHUNKED, length(), body=chunked(BODY)), [400]),
    "chunked twice": (post(CHUNKED, CHUNKED, body=chunked(BODY)), [400]),
    "chunked, identity": (post(b"Transfer-Encoding: chunked, identity"), [400]),
    "identity": (post(b"Transfer-Encoding: identity", length()), [400]),
    "gzip, chunked": (post(b"Transfer-Encoding: gzip, chunked"), [400]),
    "gzip of chunks": (post(b"Transfer-Encoding: gzip", body=chunked(BODY)), [400]),
    "chunked and more, of chunks": (post(b"Transfer-Encoding: chunkedx", body=chunked(BODY)), [400]),
    "xchunked": (post(b"Transfer-Encoding: xchunked"), [400]),
    "chunked in HTTP/1.0": (post(CHUNKED, body=chunked(BODY), version=b"HTTP/1.0"), [400]),
    "negative length": (post(b"Content-Length: -1"), [400]),
    "length with a sign": (post(b"Content-Length: +29"), [400]),
    "length in hex": (post(b"Content-Length: 0x1d"), [400]),
    "no length": (post(b"Content-Length:"), [400]),
    "length with a space": (post(b"Content-Length: 2 9"), [400]),
    "endless length": (post(b"Content-Length: " + b"9" * 40), [413]),
    "too long": (post(length(1 << 30)), [413]),
    # line ends
    "bare LF": (b"GET /health HTTP/1.1\nHost: a\n\n", [400]),
    "bare LF after a field": (b"GET /health HTTP/1.1\r\nHost: a\nX: b\r\n\r\n", [400]),
    "bare LF at the end": (b"GET /health HTTP/1.1\r\nHost: a\r\n\n", [400]),
    "LF first": (b"\n" + GOOD, [400]),
    "bare CR in a field": (b"GET /health HTTP/1.1\r\nHost: a\rX: b\r\n\r\n", [400]),
    "bare CR in the target": (b"GET /health\r HTTP/1.1\r\nHost: a\r\n\r\n", [400]),
    "folded field": (b"GET /health HTTP/1.1\r\nHost: a\r\nX: b\r\n c\r\n\r\n", [400]),
    "folded length": (post(b"Content-Length:\r\n 29"), [400]),
    "empty line first": (b"\r\n" + GOOD, [400]),
    "space first": (b"GET /health HTTP/1.1\r\n Host: a\r\n\r\n", [400]),
    # fields
    "space before the colon": (post(b"Content-Length : 29"), [400]),
    "no colon": (b"GET /health HTTP/1.1\r\nHost: a\r\nNothing\r\n\r\n", [400]),
    "no name": (b"GET /health HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n", [400]),
    "name with a NUL": (b"GET /health HTTP/1.1\r\nHost: a\r\nX\0: b\r\n\r\n", [400]),
    "value with a NUL": (b"GET /health HTTP/1.1\r\nHost: a\r\nX: \0b\r\n\r\n", [400]),
    "value with a bell": (b"GET /health HTTP/1.1\r\nHost: a\r\nX: \x07\r\n\r\n", [400]),
    "value with a DEL": (b"GET /health HTTP/1.1\r\nHost: a\r\nX: a\x7fb\r\n\r\n", [400]),
    "no host": (b"GET /health HTTP/1.1\r\n\r\n", [400]),
    "two hosts": (b"GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", [400]),
    "too many fields": (b"GET /health HTTP/1.1\r\nHost: a\r\n" + b"X: b\r\n" * 100 + b"\r\n", [431]),
    "too large": (b"GET /health HTTP/1.1\r\nHost: a\r\nX: " + b"b" * 17000 + b"\r\n\r\n", [431]),
    # the request line
    "NUL in the target": (b"GET /health\0x HTTP/1.1\r\nHost: a\r\n\r\n", [400]),
    "byte over 126 in the target": (b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n", [400]),
    "two spaces": (b"GET  /health HTTP/1.1\r\nHost: a\r\n\r\n", [400]),
    "no method": (b" /health HTTP/1.1\r\nHost: a\r\n\r\n", [400]),
    "tab before the version": (b"GET /health\tHTTP/1.1\r\nHost: a\r\n\r\n", [400]),
    "tab": (b"GET\t/health HTTP/1.1\r\nHost: a\r\n\r\n", [400]),
    "no version": (b"GET /health\r\nHost: a\r\n\r\n", [400]),
    "a long version": (b"GET /health HTTP/1.10\r\nHost: a\r\n\r\n", [400]),
    "another protocol": (b"GET /health HTTQ/1.1\r\nHost: a\r\n\r\n", [400]),
    "a comma in the version": (b"GET /health HTTP/1,1\r\nHost: a\r\n\r\n", [400]),
    "a long method": (b"A" * 17 + b" /health HTTP/1.1\r\nHost: a\r\n\r\n", [400]),
    "only a method": (b"GET\r\nHost: a\r\n\r\n", [400]),
    "HTTP/2.0": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", [505]),
    "HTTP/1.2": (b"GET /health HTTP/1.2\r\nHost: a\r\n\r\n", [505]),
    "HTTP/0.9": (b"GET /health HTTP/0.9\r\nHost: a\r\n\r\n", [505]),
    "lower case": (b"get /health HTTP/1.1\r\nHost: a\r\n\r\n", [400]),
    "absolute target": (b"GET http://a/health HTTP/1.1\r\nHost: a\r\n\r\n", [400]),
    "TLS": (b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" + b"x" * 60 + b"\n\n", [400]),
    # chunks
    "chunk without a size": (post(CHUNKED, body=b"\r\n" + BODY + b"\r\n0\r\n\r\n"), [400]),
    "chunk of negative size": (post(CHUNKED, body=b"-1\r\n"), [400]),
    "chunk with 0x": (post(CHUNKED, body=b"0x1d\r\n" + BODY + b"\r\n0\r\n\r\n"), [400]),
    "chunk extension": (post(CHUNKED, body=b"1d;a=b\r\n" + BODY + b"\r\n0\r\n\r\n"), [400]),
    "chunk of LF": (post(CHUNKED, body=b"1d\n" + BODY + b"\n0\n\n"), [400]),
    "chunk longer than its size": (post(CHUNKED, body=b"1\r\n" + BODY + b"\r\n0\r\n\r\n"), [400]),
    "chunk of endless size": (post(CHUNKED, body=b"f" * 20 + b"\r\n"), [413]),
    "chunk of a size that overflows": (post(CHUNKED, body=b"1" + b"0" * 16 + b"\r\n\r\n"), [413]),
    "chunk of a size and more": (post(CHUNKED, body=b"1dx\n" + BODY + b"\r\n0\r\n\r\n"), [400]),
    "no chunks, no size": (post(CHUNKED, body=b"\r\n\r\n"), [400]),
    "chunk of a gigabyte": (post(CHUNKED, body=b"40000000\r\n"), [413]),
    "trailer": (post(CHUNKED, body=chunked(BODY, end=b"0\r\nX: y\r\n\r\n")), [400]),
    # a good request before a bad one is answered
    "good, then bad": (GOOD + b"GET /health\n\n" + GOOD, [200, 400]),
    "post, then bad": (post(length()) + post(length(), length()) + GOOD, [200, 400]),
}


# Wrong, but not where they end: the connection goes on.
FRAMED = ("empty chunks", "escaped NUL", "escaped DEL", "broken escape", "escaped non-UTF-8")


class Framing(Served):
    def talk(self, *parts):
        """Sends the parts, reads until the server ends; the answers as (status, body)."""
        with socket.create_connection((self.server.host, self.server.port), timeout=20) as client:
            for part in parts:
                client.sendall(part)
            answers, got = [], b""
            client.settimeout(20)
            while True:
                while b"\r\n\r\n" in got:
                    head, rest = got.split(b"\r\n\r\n", 1)
                    size = int([line for line in head.split(b"\r\n")
                                if line.lower().startswith(b"content-length:")][0].split(b":")[1])
                    if len(rest) < size:
                        break
                    answers.append((int(head.split()[1]), rest[:size]))
                    got = rest[size:]
                try:
                    more = client.recv(65536)
                except ConnectionResetError:
                    break
                if not more:
                    break
                got += more
            self.assertEqual(got, b"")
            return answers

    def test_cases(self):
        last = b"GET /ping HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        self.assertGreaterEqual(len(CASES), 60)
        for name, (sent, want) in CASES.items():
            # A connection that goes on answers one more, which ends it; a refused one does not.
            goes_on = name in FRAMED or (all(status in (200, 404, 405) for status in want)
                                         and b"HTTP/1.0" not in sent)
            answers = self.talk(sent + last if goes_on else sent + GOOD * 2)
            statuses = [status for status, _ in answers]
            if goes_on:
                self.assertEqual(statuses, want + [200], name)
            elif want == [200]:
                self.assertEqual(statuses[:1], want, name)
            else:
                self.assertEqual(statuses, want, name)
            for status, body in answers:
                if status >= 400:
                    self.assertIn("error", json.loads(body), name)

    def test_answers_before_a_refusal(self):
        """However fast the good request is answered, its answer is not lost to the bad one's."""
        for name in ["good, then bad", "post, then bad"] * 100:
            sent, want = CASES[name]
            self.assertEqual([status for status, _ in self.talk(sent + GOOD)], want, name)

    def test_every_split(self):
        """However the bytes arrive, the answers are the same."""
        sent = post(CHUNKED, body=chunked(BODY[:3], BODY[3:])) + \
            b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        for at in range(1, len(sent), 7):
            self.assertEqual([status for status, _ in self.talk(sent[:at], sent[at:])], [200, 200])

    def test_expect_continue(self):
        with socket.create_connection((self.server.host, self.server.port), timeout=20) as client:
            client.sendall(post(length(), b"Expect: 100-continue", body=b""))
            self.assertTrue(client.recv(1000).startswith(b"HTTP/1.1 100 "))
            client.sendall(BODY)
            self.assertTrue(client.recv(1000).startswith(b"HTTP/1.1 200 "))


if __name__ == "__main__":
    main(__name__)
