"""Raw bytes: what HTTP leaves no doubt about is answered, all else is refused with 400 and the end of
the connection (T6). After a refusal not one byte of what follows may be taken for a request."""
import json
import random
import re
import socket

from serving import PATIENCE, Served, main

GOOD = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"
BODY = b'{"inputs":"a","dimensions":2}'


def post(*fields, body=BODY, path=b"/embed", version=b"HTTP/1.1"):
    return b"\r\n".join([b"POST " + path + b" " + version, b"Host: localhost", *fields, b"", body])


def length(n=len(BODY)):
    return b"Content-Length: %d" % n


def chunked(*parts, end=b"0\r\n\r\n"):
    return b"".join(b"%x\r\n%s\r\n" % (len(one), one) for one in parts) + end


CHUNKED = b"Transfer-Encoding: chunked"
# Where a body would be taken for a request, this one would be answered, by its name.
INNER = b"GET /ping HTTP/1.1\r\nHost: a\r\nx-request-id: inner\r\n\r\n"


def get(*fields, line=b"GET /health HTTP/1.1", body=b""):
    return b"\r\n".join([line, b"Host: localhost", *fields, b"", body])


def encoded(field):
    """Chunks under a field that is like Transfer-Encoding."""
    return post(field, body=chunked(BODY))


def sized(*fields):
    """A body that is a request, under fields that are like Content-Length."""
    return post(*(field % len(INNER) if b"%d" in field else field for field in fields), body=INNER)


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
    "asterisk": (b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", [400]),
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
    "no target": (b"GET  HTTP/1.1\r\nHost: a\r\n\r\n", [400]),
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
    "chunk extension": (post(CHUNKED, body=b"1d;a=b;c=\"d e\"\r\n" + BODY + b"\r\n0;last\r\n\r\n"), [200]),
    "chunk extension and another request": (post(CHUNKED, body=b"1d;a\r\n" + BODY + b"\r\n0;b\r\nX: y\r\n\r\n") + post(CHUNKED, body=chunked(BODY)), [200, 200]),
    "chunk extension without a size": (post(CHUNKED, body=b";a=b\r\n" + BODY + b"\r\n0\r\n\r\n"), [400]),
    "space before a chunk extension": (post(CHUNKED, body=b"1d ;a=b\r\n" + BODY + b"\r\n0\r\n\r\n"), [400]),
    "chunk extension of LF": (post(CHUNKED, body=b"1d;a=b\n" + BODY + b"\r\n0\r\n\r\n"), [400]),
    "chunk extension with a NUL": (post(CHUNKED, body=b"1d;a=\0\r\n" + BODY + b"\r\n0\r\n\r\n"), [400]),
    "CR in a chunk extension": (post(CHUNKED, body=b"1d;a=\rb\r\n" + BODY + b"\r\n0\r\n\r\n"), [400]),
    "endless chunk extension": (post(CHUNKED, body=b"1d;" + b"a" * 3000 + b"\r\n" + BODY + b"\r\n0\r\n\r\n"), [431]),
    "many chunk extensions": (post(CHUNKED, body=b"1;aaaaaaa\r\n1\r\n" * 300 + b"0\r\n\r\n"), [431]),
    "chunk of LF": (post(CHUNKED, body=b"1d\n" + BODY + b"\n0\n\n"), [400]),
    "chunk longer than its size": (post(CHUNKED, body=b"1\r\n" + BODY + b"\r\n0\r\n\r\n"), [400]),
    "chunk of endless size": (post(CHUNKED, body=b"f" * 20 + b"\r\n"), [413]),
    "chunk of a size that overflows": (post(CHUNKED, body=b"1" + b"0" * 16 + b"\r\n\r\n"), [413]),
    "chunk of a size and more": (post(CHUNKED, body=b"1dx\n" + BODY + b"\r\n0\r\n\r\n"), [400]),
    "no chunks, no size": (post(CHUNKED, body=b"\r\n\r\n"), [400]),
    "chunk of a gigabyte": (post(CHUNKED, body=b"40000000\r\n"), [413]),
    "trailer": (post(CHUNKED, body=chunked(BODY, end=b"0\r\nX: y\r\nX-Sum: 7\r\n\r\n")), [200]),
    "trailer without a colon": (post(CHUNKED, body=chunked(BODY, end=b"0\r\nX\r\n\r\n")), [400]),
    "trailer with a space before the colon": (post(CHUNKED, body=chunked(BODY, end=b"0\r\nX : y\r\n\r\n")), [400]),
    "folded trailer": (post(CHUNKED, body=chunked(BODY, end=b"0\r\nX: y\r\n z\r\n\r\n")), [400]),
    "trailer of LF": (post(CHUNKED, body=chunked(BODY, end=b"0\r\nX: y\n\r\n")), [400]),
    "request after the last chunk": (post(CHUNKED, body=chunked(BODY, end=b"0\r\nGET /health HTTP/1.1\r\n\r\n")), [400]),
    "endless trailers": (post(CHUNKED, body=chunked(BODY, end=b"0\r\n" + b"X: y\r\n" * 400 + b"\r\n")), [431]),
    # Transfer-Encoding in disguise: readers that see it and readers that do not
    "encoding after a tab": (encoded(b"Transfer-Encoding:\tchunked"), [200]),
    "encoding in capitals": (encoded(b"TRANSFER-ENCODING: CHUNKED"), [200]),
    "space before the colon of an encoding": (encoded(b"Transfer-Encoding : chunked"), [400]),
    "encoding after a vertical tab": (encoded(b"Transfer-Encoding: \x0bchunked"), [400]),
    "vertical tab after an encoding": (encoded(b"Transfer-Encoding: chunked\x0b"), [400]),
    "space after an encoding": (encoded(b"Transfer-Encoding: chunked "), [400]),
    "tab after an encoding": (encoded(b"Transfer-Encoding: chunked\t"), [400]),
    "NUL after an encoding": (encoded(b"Transfer-Encoding: chunked\0"), [400]),
    "encoding in quotes": (encoded(b'Transfer-Encoding: "chunked"'), [400]),
    "comma after an encoding": (encoded(b"Transfer-Encoding: chunked,"), [400]),
    "comma before an encoding": (encoded(b"Transfer-Encoding: ,chunked"), [400]),
    "parameter of an encoding": (encoded(b"Transfer-Encoding: chunked;q=1"), [400]),
    "encoding twice in one": (encoded(b"Transfer-Encoding: chunked chunked"), [400]),
    "no encoding": (encoded(b"Transfer-Encoding:"), [400]),
    "encoding after LF": (encoded(b"X: y\nTransfer-Encoding: chunked"), [400]),
    "encoding after CR": (encoded(b"X: y\rTransfer-Encoding: chunked"), [400]),
    "colon of an encoding on the next line": (encoded(b"Transfer-Encoding\r\n: chunked"), [400]),
    "folded encoding": (encoded(b"Transfer-Encoding:\r\n chunked"), [400]),
    "encoding that goes on folded": (encoded(b"Transfer-Encoding: chunked\r\n\tx"), [400]),
    "encoding that is no ASCII": (encoded(b"Transfer-Encoding: ch\xc3\xbcnked"), [400]),
    "encoding after a byte order mark": (encoded(b"\xef\xbb\xbfTransfer-Encoding: chunked"), [400]),
    "encoding, then identity": (encoded(b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity"), [400]),
    "identity, then encoding": (encoded(b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked"), [400]),
    "length and an encoding with a space": (post(length(), b"Transfer-Encoding : chunked", body=chunked(BODY)), [400]),
    "length and an underscore": (post(length(), b"Transfer_Encoding: chunked"), [200]),
    # lengths in disguise
    "length in small letters": (sized(b"content-length: %d"), [400]),
    "length after a tab": (sized(b"Content-Length:\t%d"), [400]),
    "space after a length": (sized(b"Content-Length: %d "), [400]),
    "tab after a length": (sized(b"Content-Length: %d\t"), [400]),
    "NUL after a length": (sized(b"Content-Length: %d\0"), [400]),
    "no-break space before a length": (sized(b"Content-Length:\xc2\xa0%d"), [400]),
    "comma after a length": (sized(b"Content-Length: %d,"), [400]),
    "comma before a length": (sized(b"Content-Length: ,%d"), [400]),
    "semicolon after a length": (sized(b"Content-Length: %d;"), [400]),
    "length in quotes": (sized(b"Content-Length: '%d'"), [400]),
    "length with a fraction": (sized(b"Content-Length: %d.0"), [400]),
    "length with an exponent": (sized(b"Content-Length: 5e1"), [400]),
    "length with an underscore in it": (sized(b"Content-Length: 5_4"), [400]),
    "length in digits of another script": (sized(b"Content-Length: \xd9\xa5\xd9\xa4"), [400]),
    "length that is 32 bits over": (sized(b"Content-Length: %d" % (len(INNER) + (1 << 32))), [413]),
    "length that is 64 bits over": (sized(b"Content-Length: %d" % (len(INNER) + (1 << 64))), [413]),
    "length of many zeros": (sized(b"Content-Length: 00000000000000000%d"), [413]),
    "length and an empty one": (sized(b"Content-Length: %d", b"Content-Length:"), [400]),
    "no length, then one": (sized(b"Content-Length: 0", b"Content-Length: %d"), [400]),
    "length named by Connection": (sized(b"Connection: Content-Length", b"Content-Length: %d"), [400]),
    "length beside an own one": (sized(b"Content-Length: %d", b"X-Content-Length: 5"), [400]),
    # requests whose body is not read are not followed by it
    "GET with a body": (get(length(len(INNER)), body=INNER), [200]),
    "GET with chunks": (get(CHUNKED, body=chunked(INNER)), [200]),
    # who is asked
    "Host is empty": (b"GET /health HTTP/1.1\r\nHost:\r\n\r\n", [200]),
    "Host with a port": (b"GET /health HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", [200]),
    **{"Host " + str(host): (b"GET /health HTTP/1.1\r\nHost: " + host + b"\r\n\r\n", [400])
       for host in (b"a, b", b"a b", b"a,b", b"a\tb", b"user@a", b"a/b", b"a?b", b"a#b", b"a\\b", b'"a"', b"\xff")},
    "two hosts that are one": (b"GET /health HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n", [400]),
    "authority": (get(line=b"GET a:80 HTTP/1.1"), [400]),
    "CONNECT": (get(line=b"CONNECT a:443 HTTP/1.1"), [400]),
    "absolute target with a body": (post(length(), path=b"http://a/embed"), [400]),
    "absolute target by TLS": (get(line=b"GET https://a/health HTTP/1.1"), [400]),
    "target that begins with an at": (get(line=b"GET @a/health HTTP/1.1"), [400]),
    "backslash": (get(line=b"GET \\health HTTP/1.1"), [400]),
    "star": (get(line=b"GET * HTTP/1.1"), [400]),
    "star of OPTIONS": (get(line=b"OPTIONS * HTTP/1.1"), [400]),
    "two slashes": (get(line=b"GET //a/health HTTP/1.1"), [404]),
    "escaped CR LF": (get(line=b"GET /health%0d%0aX:y HTTP/1.1"), [400]),
    # other versions and protocols
    "HTTP/0.9 without a version": (b"GET /health\r\n\r\n", [400]),
    "version in small letters": (get(line=b"GET /health http/1.1"), [400]),
    "space after the version": (get(line=b"GET /health HTTP/1.1 "), [400]),
    "NUL after the version": (get(line=b"GET /health HTTP/1.1\0"), [400]),
    "two spaces before the version": (get(line=b"GET /health  HTTP/1.1"), [400]),
    "vertical tab": (get(line=b"GET\x0b/health HTTP/1.1"), [400]),
    "method with a sign": (get(line=b"GE!T /health HTTP/1.1"), [400]),
    "upgrade to HTTP/2": (get(b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c",
                              b"HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA"), [200]),
    "upgrade to a web socket": (get(b"Connection: Upgrade", b"Upgrade: websocket", b"Sec-WebSocket-Version: 13",
                                    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="), [200]),
    "HTTP/2 frames": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", [505]),
    "Expect without a body": (get(b"Expect: 100-continue"), [400]),
    "Expect and an empty body": (post(length(0), b"Expect: 100-continue", body=b""), [400]),
    "Expect of something else": (post(length(), b"Expect: 200-ok"), [200]),
    # chunks in disguise
    "chunk size with a zero before": (post(CHUNKED, body=b"01d\r\n" + BODY + b"\r\n000\r\n\r\n"), [200]),
    **{"chunk size " + str(size): (post(CHUNKED, body=size + BODY + b"\r\n0\r\n\r\n"), [400])
       for size in (b"1d \r\n", b" 1d\r\n", b"1d\t\r\n", b"+1d\r\n", b"1_d\r\n", b"1d;\r\n", b"1d\n\r\n", b"1d\r",
                    b"1d\r\r\n", b"1d\0\r\n", b'1d;a="b\r\n"\r\n', b"\xd9\xa1d\r\n")},
    "chunk size of many zeros": (post(CHUNKED, body=b"0" * 16 + b"1d\r\n" + BODY + b"\r\n0\r\n\r\n"), [413]),
    "chunk of all bits": (post(CHUNKED, body=b"f" * 16 + b"\r\n" + BODY + b"\r\n0\r\n\r\n"), [413]),
    **{"last chunk " + str(end): (post(CHUNKED, body=chunked(BODY, end=end)), [400])
       for end in (b"0\n\n", b"0\r\n\n", b"0\n\r\n", b"0;\r\n\r\n", b"0\r\r\n\r\n", b"-0\r\n\r\n", b"0\r\nContent-Length: 5\r\n\r\n",
                   b"0\r\nTransfer-Encoding: chunked\r\n\r\n", b"0\r\nHost: b\r\n\r\n")},
    # what takes memory in the parser behind
    "too many parts of a query": (get(line=b"GET /health?" + b"a=b&" * 100 + b" HTTP/1.1"), [431]),
    "too many cookies": (get(b"Cookie: " + b"a=b; " * 100), [431]),
    "fields, cookies and parts of a query": (get(*[b"X: b"] * 40, b"Cookie: " + b"a=b; " * 40,
                                                 line=b"GET /health?" + b"a&" * 30 + b" HTTP/1.1"), [431]),
    "one large cookie": (get(b"Cookie: a=" + b"b" * 15900), [200]),
    "one hundred of all": (get(*[b"X: " + b"b" * 100] * 58, b"Cookie: " + b"a=" + b"b" * 150 + b"; a=b" * 20,
                               line=b"GET /health?" + b"a&" * 20 + b" HTTP/1.1"), [200]),
    "a large target": (get(line=b"GET /" + b"a" * 16000 + b" HTTP/1.1"), [404]),
    # a good request before a bad one is answered
    "good, then bad": (GOOD + b"GET /health\n\n" + GOOD, [200, 400]),
    "post, then bad": (post(length()) + post(length(), length()) + GOOD, [200, 400]),
    "good, then a bad chunk": (GOOD + post(CHUNKED, body=b"x\r\n"), [200, 400]),
    "two good, then a bad second chunk": (GOOD + post(length()) + post(CHUNKED, body=b"1\r\n{\r\nx"), [200, 200, 400]),
}


# Wrong, but not where they end: the connection goes on.
FRAMED = ("asterisk", "empty chunks", "escaped NUL", "escaped DEL", "broken escape", "escaped non-UTF-8", "star", "star of OPTIONS",
          "escaped CR LF", "length in small letters", "length after a tab", "length named by Connection",
          "length beside an own one")


class Framing(Served):
    def talk(self, *parts):
        """Sends the parts, reads until the server ends; the answers as (status, body)."""
        with socket.create_connection((self.server.host, self.server.port), timeout=PATIENCE) as client:
            for part in parts:
                client.sendall(part)
            answers, got = [], b""
            while True:
                while b"\r\n\r\n" in got:
                    head, rest = got.split(b"\r\n\r\n", 1)
                    size = int([line for line in head.split(b"\r\n")
                                if line.lower().startswith(b"content-length:")][0].split(b":")[1])
                    if len(rest) < size:
                        break
                    self.assertNotIn(b"x-request-id: inner", head, "a body is taken for a request")
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
        self.assertGreater(len(CASES), 160)
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
        for name in ["good, then bad", "post, then bad", "good, then a bad chunk",
                     "two good, then a bad second chunk"] * 50:
            sent, want = CASES[name]
            self.assertEqual([status for status, _ in self.talk(sent + GOOD)], want, name)

    def test_an_answer_in_work_before_a_refusal(self):
        """What ends a body in the middle does not end the answer before it, which takes a while."""
        body = json.dumps({"inputs": ["text %d " % i + "words " * 100 for i in range(20)]}).encode()
        slow = post(length(len(body)), body=body)
        for bad in (post(CHUNKED, body=b"x\r\n"), post(CHUNKED, body=b"1\r\n{\r\nx"), b"BAD\r\n\r\n"):
            for parts in ([slow + bad], [slow, bad]):
                self.assertEqual([status for status, _ in self.talk(*parts, GOOD)], [200, 400], bad)

    def test_mutants(self):
        """Headers with bytes put in, taken out and changed: nothing is passed on that libmicrohttpd reads in another
        way. It would answer the body as a request, or in words of its own."""
        chance = random.Random(6)
        odd = [bytes([one]) for one in b" \t\r\n\0\x0b\x0c\x1f\x7f\x80\x85\xa0\xff,;:\"'0+-_=\\"]
        forms = [([length(len(INNER))], INNER), ([CHUNKED], chunked(INNER)), ([length(len(INNER)), b"X: y"], INNER),
                 ([length(len(INNER)), b"Expect: 100-continue"], INNER), ([b"Connection: keep-alive", length(len(INNER))], INNER)]
        statuses = set()
        last = get(b"Connection: close")
        for _ in range(1500):
            fields, body = chance.choice(forms)
            head = chance.choice((post, get))(*fields, body=b"")
            begin = min(at for at in (head.find(b"Content-Length"), head.find(b"Transfer-Encoding")) if at > 0)
            for _ in range(chance.randint(1, 2)):
                at = chance.randrange(begin, head.index(b"\r\n", begin) + 2)
                cut = chance.randint(0, 1)
                head = head[:at] + chance.choice([*odd, b"", bytes([head[at] ^ 32])]) + head[at + cut:]
            with socket.create_connection((self.server.host, self.server.port), timeout=1) as client:
                got = b""
                try:
                    client.sendall(head + body + last)
                    while more := client.recv(65536):
                        got += more
                except (ConnectionError, TimeoutError):  # that of one which waits for a longer body
                    pass
            names = [line.split(b":")[0].lower() for line in head.split(b"\r\n\r\n")[0].split(b"\r\n")[1:]]
            right = re.search(rb"(?i)\r\ncontent-length:[ \t]*(\d+)\r\n", head)
            if b"content-length" in names or b"transfer-encoding" in names:
                if not right or int(right[1]) >= len(INNER):
                    self.assertNotIn(b"x-request-id: inner", got, head)
            self.assertNotIn(b"<html", got, head)
            statuses |= set(re.findall(rb"HTTP/1\.1 (\d+) ", got))
        self.assertLessEqual({b"200", b"400"}, statuses)

    def test_every_split(self):
        """However the bytes arrive, the answers are the same."""
        sent = post(CHUNKED, body=chunked(BODY[:3], BODY[3:])) + \
            b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        for at in range(1, len(sent), 7):
            self.assertEqual([status for status, _ in self.talk(sent[:at], sent[at:])], [200, 200])

    def test_a_body_that_is_refused(self):
        """By its path, its method or its size: it is not read, nor is what follows."""
        body = length(len(INNER))
        for sent, status in ((post(body, body=INNER, path=b"/nowhere"), 404), (post(body, body=INNER, path=b"/health"), 405),
                             (get(body, line=b"DELETE /embed HTTP/1.1", body=INNER), 405),
                             (get(body, line=b"OPTIONS /embed HTTP/1.1", body=INNER), 405),
                             (post(length(1 << 28), body=INNER), 413)):
            self.assertEqual([one for one, _ in self.talk(sent + GOOD)], [status], sent)

    def test_answers_without_a_body(self):
        """To HEAD: the next answer is the next request's."""
        with socket.create_connection((self.server.host, self.server.port), timeout=PATIENCE) as client:
            client.sendall(get(length(len(INNER)), line=b"HEAD /health HTTP/1.1", body=INNER) +
                           get(b"x-request-id: last", b"Connection: close"))
            got = b""
            while more := client.recv(65536):
                got += more
        self.assertEqual(got.count(b"HTTP/1.1 200 "), 2, got)
        self.assertNotIn(b"inner", got)
        self.assertIn(b"x-request-id: last", got)

    def test_expect_continue(self):
        with socket.create_connection((self.server.host, self.server.port), timeout=PATIENCE) as client:
            client.sendall(post(length(), b"Expect: 100-continue", body=b""))
            self.assertTrue(client.recv(1000).startswith(b"HTTP/1.1 100 "))
            client.sendall(BODY)
            self.assertTrue(client.recv(1000).startswith(b"HTTP/1.1 200 "))


if __name__ == "__main__":
    main(__name__)
