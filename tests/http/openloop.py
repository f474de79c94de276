"""Requests that are sent when their time has come, whether earlier ones are answered or not."""
import asyncio
import json
import time


class Client:
    """Kept connections to one server; each answer is (latency in seconds, status, headers, body)."""

    def __init__(self, server):
        self.server, self.free = server, []

    async def ask(self, body, due=None):
        started = time.perf_counter() if due is None else due
        reader, writer = self.free.pop() if self.free else await asyncio.open_connection(
            self.server.host, self.server.port, limit=1 << 22)
        writer.write(b"POST /v1/embeddings HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
                     b"Content-Length: %d\r\n\r\n" % len(body) + body)
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        text = await reader.readexactly(int(headers["content-length"]))
        self.free.append((reader, writer))
        return time.perf_counter() - started, int(head[0].split()[1]), headers, text

    def close(self):
        for _, writer in self.free:
            writer.close()


def bodies(n_texts, name):
    """Without end: requests of which no two have a text in common."""
    number = 0
    while True:
        yield json.dumps({"encoding_format": "base64", "input": [
            "%s %d, text %d of some words about dogs in parks and cats on roofs" % (name, number, i)
            for i in range(n_texts)]}).encode()
        number += 1


async def closed(server, source, n_clients, seconds):
    """Clients that ask again as soon as they have an answer; all answers, and the time it took."""
    client, answers = Client(server), []
    started = time.perf_counter()

    async def run():
        while time.perf_counter() - started < seconds:
            body = next(source)
            answers.append((body, *await client.ask(body)))

    await asyncio.gather(*(run() for _ in range(n_clients)))
    client.close()
    return answers, time.perf_counter() - started


async def opened(server, source, rate, seconds):
    """`rate` requests a second, evenly."""
    client, answers, tasks = Client(server), [], []
    started = time.perf_counter()

    async def run(body, due):
        answers.append((body, *await client.ask(body, due)))

    for i in range(max(1, int(rate * seconds))):
        due = started + i / rate
        await asyncio.sleep(max(0, due - time.perf_counter()))
        tasks.append(asyncio.create_task(run(next(source), due)))
    await asyncio.gather(*tasks)
    client.close()
    return answers, time.perf_counter() - started
