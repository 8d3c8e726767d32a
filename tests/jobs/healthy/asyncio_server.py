"""Each rank runs an asyncio server: requests, a pause, requests, and then none for long."""

import asyncio
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist

from zoo.rank import STEP_S, Case, Job, join, truth

CASE = Case(modes=("sync",), lasts_s=150, allowed=(truth("undecided", progress="unknown"),))
PAUSE_S = 40


def ask(job: Job, door: Path) -> None:
    """Every rank gets the same requests at about the same time."""

    async def send() -> None:
        _, line = await asyncio.open_unix_connection(str(door))
        line.write(b"x")
        await line.drain()
        line.close()

    for number in range(40):
        if number == 20:
            time.sleep(PAUSE_S)
        time.sleep(STEP_S)
        asyncio.run(send())
    job.mark_fault()


async def serve(job: Job) -> None:
    door = job.folder / f"door{job.rank}"
    prompt = torch.zeros(10)

    async def answer(reader: asyncio.StreamReader, line: asyncio.StreamWriter) -> None:
        await reader.read(1)
        dist.all_reduce(prompt)
        line.close()

    server = await asyncio.start_unix_server(answer, str(door))
    threading.Thread(target=ask, args=(job, door), daemon=True).start()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(join()))
