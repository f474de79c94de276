#!/usr/bin/env python3
"""The progress line on a terminal: what it counts."""
import fcntl
import os
import pty
import re
import select
import subprocess
import time

from common import Case, PROGRAM, ROOT, environment, main, model

F_SETPIPE_SZ = 1031  # fcntl.F_SETPIPE_SZ since Python 3.10
SPLADE = "splade-tiny"
TINY = os.path.join(ROOT, "tests", "data", "models")


class Progress(Case):
    def shares(self, n, pipe, *arguments):
        """(per cent, texts) of each progress line. The program waits for the reader of a pipe of this many
        bytes, which pauses for longer than the time between two lines."""
        leader, follower = pty.openpty()
        with subprocess.Popen([PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=follower,
                              env=environment()) as program:
            os.close(follower)
            fcntl.fcntl(program.stdout.fileno(), F_SETPIPE_SZ, pipe)
            count = 0
            while True:
                time.sleep(0.11 if count < n else 0)
                piece = os.read(program.stdout.fileno(), pipe)
                count += piece.count(b"\n")
                if not piece:
                    break
            self.assertEqual(program.wait(), 0)
        self.assertEqual(count, n)
        shown = b""
        while select.select([leader], [], [], 0)[0]:
            try:
                shown += os.read(leader, 4096)
            except OSError:  # the other end is closed
                break
        os.close(leader)
        return [(int(share), int(done)) for share, done
                in re.findall(r"\] +(\d+) %  (\d+) texts", shown.decode())]

    def test_progress_is_the_share_of_the_texts_that_are_done(self):
        # Texts of one size: the share of the bytes is that of the texts. One buffer holds all of them.
        many = self.write("many.txt", "".join("text %04d of some words\n" % i for i in range(3000)))
        few = self.write("few.txt", "".join("w1 w2 w%d\n" % (i % 10) for i in range(600)))
        for n, pipe, arguments in (
                (3000, 1 << 17, ("embed", "-m", model(SPLADE), "-i", many)),
                (600, 1 << 12, ("classify", "-m", os.path.join(TINY, "bert-pairs"), "-i", few, "--batch", "100")),
                (600, 1 << 12, ("classify", "-m", os.path.join(TINY, "bert-tokens"), "-i", few, "--batch", "100"))):
            found = self.shares(n, pipe, *arguments)
            self.assertGreater(len(found), 2, arguments)
            for share, done in found:
                self.assertLessEqual(abs(share - 100 * done / n), 1, f"{share} % at {done} of {n} texts")


if __name__ == "__main__":
    main(__name__)
