"""Sessions for programs that are asynchronous: each call in a thread, and a command that is cancelled is killed."""

import functools

import anyio
import caisson_client

# How long a thread may go on after its task was cancelled.
SLICE_SECONDS = 5


async def call(function, *arguments, **options):
    return await anyio.to_thread.run_sync(functools.partial(function, *arguments, **options))


async def run(session, command, **options):
    number = await call(session.start, command, **options)
    wait = functools.partial(session.wait, number, SLICE_SECONDS)
    try:
        while True:
            result = await anyio.to_thread.run_sync(wait, abandon_on_cancel=True)
            if result is not None:
                return result
    except anyio.get_cancelled_exc_class():
        with anyio.CancelScope(shield=True):
            try:
                await call(session.signal, number, "KILL")
            except caisson_client.ApiError:
                pass  # it has ended
        raise
