"""A stand-in for the Hugging Face hub, on loopback: the API's answer, files, LFS files behind a
redirect to a second server (the CDN), and the faults that tests set in `Hub.faults`."""
import hashlib
import http.server
import json
import threading

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def git_hash(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Hub:
    """`files` maps names to bytes; names ending in .safetensors are LFS files."""

    def __init__(self, files, name="org/tiny"):
        self.files, self.name = dict(files), name
        self.more = {}  # other models: name -> files
        self.token = None  # asked for when set
        self.break_after = {}  # file -> bytes after which the connection is dropped, once
        self.corrupt = set()  # files whose last byte is changed
        self.longer = set()  # files sent with bytes behind their end
        self.no_range = False  # answers 200 to a range
        self.statuses = []  # the next requests get these first
        self.extra = []  # more entries of the listing
        self.requests = []  # (server, path, range, authorization)
        self.hub = self.serve("hub")
        self.cdn = self.serve("cdn")
        self.url = "http://127.0.0.1:%d" % self.hub.server_address[1]

    def serve(self, kind):
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                owner.requests.append((kind, self.path, self.headers.get("Range"),
                                       self.headers.get("Authorization")))
                owner.answer(self, kind)

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return server

    def close(self):
        for server in (self.hub, self.cdn):
            server.shutdown()
            server.server_close()

    def listing(self, files):
        siblings = []
        for name, data in files.items():
            entry = {"rfilename": name, "size": len(data), "blobId": git_hash(data)}
            if name.endswith(".safetensors"):
                entry["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data),
                                "pointerSize": 130}
            siblings.append(entry)
        return json.dumps({"id": self.name, "sha": COMMIT, "siblings": siblings + self.extra})

    def answer(self, request, kind):
        path = request.path
        if self.statuses:
            return self.send(request, self.statuses.pop(0), b"a fault")
        if kind == "hub" and self.token and \
                request.headers.get("Authorization") != "Bearer " + self.token:
            return self.send(request, 401, b"who are you?")
        if kind == "hub" and path.startswith("/api/models/"):
            for model, files in [(self.name, self.files), *self.more.items()]:
                if path in ("/api/models/%s/revision/%s?blobs=true" % (model, revision)
                            for revision in ("main", "refs%2Fpr%2F1", COMMIT)):
                    return self.send(request, 200, self.listing(files).encode())
            return self.send(request, 404, b"no such model")
        for model, files in [(self.name, self.files), *self.more.items()]:
            prefix = "/%s/resolve/%s/" % (model, COMMIT)
            name = path[len(prefix):] if path.startswith(prefix) else None
            if name in files:
                break
        else:
            return self.send(request, 404, b"no such file")
        if kind == "hub" and name.endswith(".safetensors"):
            request.send_response(302)
            request.send_header("Location",
                                "http://127.0.0.1:%d%s" % (self.cdn.server_address[1], path))
            request.send_header("Content-Length", "0")
            request.end_headers()
            return None
        return self.send_file(request, name, files)

    def send_file(self, request, name, files):
        data, status, begin = files[name], 200, 0
        if name in self.corrupt:
            data = data[:-1] + bytes([data[-1] ^ 1])
        if name in self.longer:
            data += b"more than was listed"
        asked = request.headers.get("Range")
        if asked and not self.no_range:
            begin, status = int(asked[len("bytes="):-1]), 206
            if begin >= len(data):
                return self.send(request, 416, b"")
        end = min(len(data), begin + self.break_after.pop(name, len(data)))
        request.send_response(status)
        request.send_header("Content-Length", str(len(data) - begin))
        if status == 206:
            request.send_header("Content-Range",
                                "bytes %d-%d/%d" % (begin, len(data) - 1, len(data)))
        request.end_headers()
        request.wfile.write(data[begin:end])
        return None

    @staticmethod
    def send(request, status, body):
        request.send_response(status)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)
