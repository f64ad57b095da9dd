"""Connections on which answers are slow, and lost where the one that answers ends."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterator


@contextlib.contextmanager
def slow_link(port: int, delay_s: float) -> Iterator[int]:
    """A port of this machine for what listens on `port`.

    What it answers comes `delay_s` later. When it closes a connection, what is still on the way is
    lost, and the connection is reset: as the system does for a process that ends with data unread.
    """
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(_relay_to(port, delay_s), "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        server.close()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


def _relay_to(
    port: int, delay_s: float
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[None, None, None]]:
    async def relay(asks: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        try:
            answered, asked = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            answers.transport.abort()
            return

        async def ask() -> None:
            with contextlib.suppress(OSError):
                while content := await asks.read(2**16):
                    asked.write(content)
            asked.close()

        asking = asyncio.ensure_future(ask())
        with contextlib.suppress(OSError):
            while content := await answered.read(2**16):
                asyncio.get_running_loop().call_later(delay_s, answers.write, content)
        answers.transport.abort()
        await asking

    return relay
