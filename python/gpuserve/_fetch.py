"""One HTTP request or hash for the program's command ``pull``: Python's in place of libcurl and libcrypto.

The program starts this file as a script (GPUSERVE_FETCH) and writes three lines to its standard input: URL, offset,
token. Standard output is "STATUS DETAIL" and a line break, then the body; STATUS 0: no answer came. The exit status
is 0 for a whole answer, 2 if the connection broke, 3 if the certificate is not trusted, else 1. With ``--hash sha256``
or ``--hash git`` standard input is a file, and standard output its hash. Standard library only.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import ssl
import sys
import urllib.error
import urllib.request
from typing import Any, Optional
from urllib.parse import urlsplit

FAILED, BROKEN, UNTRUSTED = 1, 2, 3
STALL_S = 30
BLOCK_BYTES, FILE_BLOCK_BYTES = 1 << 16, 1 << 20
MAX_REDIRECTS = 5


class Redirects(urllib.request.HTTPRedirectHandler):
    """Never from https to http, and the token only to the host that it is for."""

    max_redirections = MAX_REDIRECTS

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        before, after = urlsplit(str(req.full_url)), urlsplit(newurl)
        if before.scheme == "https" and after.scheme != "https":
            raise urllib.error.URLError(f"the redirect to {after.scheme}://{after.netloc} is not encrypted")
        new = super().redirect_request(req, fp, code, msg, headers, newurl)
        token = req.unredirected_hdrs.get("Authorization")
        if new is not None and token and (before.scheme, before.netloc) == (after.scheme, after.netloc):
            new.add_unredirected_header("Authorization", token)
        return new


def trusted() -> ssl.SSLContext:
    """The certificates of CURL_CA_BUNDLE or SSL_CERT_FILE, else the system's, else certifi's."""
    bundle = os.environ.get("CURL_CA_BUNDLE") or os.environ.get("SSL_CERT_FILE")
    context = ssl.create_default_context(cafile=bundle or None)
    paths = ssl.get_default_verify_paths()
    if not bundle and not paths.cafile and not context.get_ca_certs():
        try:
            import certifi

            context.load_verify_locations(certifi.where())
        except ImportError:
            pass
    return context


def answer(status: int, detail: str) -> None:
    sys.stdout.buffer.write(f"{status} {' '.join(detail.split())}\n".encode("utf-8", "replace"))


def copy(response: Any) -> None:
    declared: Optional[str] = response.headers.get("Content-Length")
    left = int(declared) if declared and declared.isdigit() else None
    while block := response.read(BLOCK_BYTES):
        sys.stdout.buffer.write(block)
        left = left - len(block) if left is not None else None
    if left:
        raise http.client.IncompleteRead(b"", left)


def fetch(url: str, offset: int, token: str) -> int:
    """Make the request; the exit status."""
    request = urllib.request.Request(url, headers={"User-Agent": "gpuserve", "Accept-Encoding": "identity"})
    if offset:
        request.add_header("Range", f"bytes={offset}-")
    if token:
        request.add_unredirected_header("Authorization", "Bearer " + token)
    opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=trusted()), Redirects())
    begun = False
    try:
        try:
            response: Any = opener.open(request, timeout=STALL_S)
        except urllib.error.HTTPError as error:
            response = error
        with response:
            answer(response.status, "")
            begun = True
            copy(response)
    except BrokenPipeError:
        return FAILED  # the program wants no more
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        if not begun:
            answer(0, f"{reason}" or type(error).__name__)
        if isinstance(reason, ssl.SSLCertVerificationError):
            return UNTRUSTED
        passing = (TimeoutError, ConnectionResetError, http.client.IncompleteRead, http.client.RemoteDisconnected)
        return BROKEN if begun or isinstance(reason, passing) else FAILED
    return 0


def print_hash(kind: str) -> int:
    """The hash of the file on standard input; "git" is that of a git blob, which begins with its size."""
    file = sys.stdin.buffer
    if kind == "sha256":
        digest = hashlib.sha256()
    else:
        digest = hashlib.sha1(b"blob %d\0" % os.fstat(file.fileno()).st_size, usedforsecurity=False)
    while block := file.read(FILE_BLOCK_BYTES):
        digest.update(block)
    print(digest.hexdigest())
    return 0


def main() -> int:
    if sys.argv[1:2] == ["--hash"]:
        return print_hash(sys.argv[2])
    url, offset, token = (sys.stdin.readline().rstrip("\n") for _ in range(3))
    try:
        status = fetch(url, int(offset), token)
        sys.stdout.flush()
    except BrokenPipeError:
        status = FAILED
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is buffered goes nowhere, without a message
    return status


if __name__ == "__main__":
    sys.exit(main())
