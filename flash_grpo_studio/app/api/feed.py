"""What happens, as it happens: one look at the store for all open streams of this process, however many there are."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from starlette.concurrency import run_in_threadpool

from flash_grpo_studio.app.api.errors import NotLoggedIn, Refused
from flash_grpo_studio.app.jobs.access import Actor, Forbidden
from flash_grpo_studio.app.jobs.change import NotFound
from flash_grpo_studio.app.store.engine import Store, StoreUnavailable
from flash_grpo_studio.app.store.listing import Happening, active_progress, happenings, newest_event_id

log = logging.getLogger("flash_grpo_studio.api")
LOOK_SECONDS = 0.5
"""Between two looks; so a job's progress is told at most twice a second."""
HEARTBEAT_SECONDS = 10.0
RECHECK_SECONDS = 15.0
OVERLAP_SECONDS = 10.0
"""Events of the last seconds are read again: PostgreSQL may make a lower number visible after a higher one."""
WAITING = 1000
"""Messages a slow client may have waiting before its stream is ended; it comes back with Last-Event-ID."""
BACKLOG = 1000


@dataclass(frozen=True)
class Message:
    """One server-sent event; those with an id can be resumed after."""

    event: str
    data: dict[str, Any]
    job_id: str | None
    owner_id: str | None
    shared: bool = False
    id: int | None = None

    def encode(self) -> bytes:
        """As on the wire."""
        head = f"id: {self.id}\n" if self.id is not None else ""
        body = json.dumps(self.data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return f"{head}event: {self.event}\ndata: {body}\n\n".encode("utf-8", "replace")

    def visible_to(self, actor: Actor) -> bool:
        """Whether the actor may see the job it tells of."""
        return actor.admin or self.owner_id == actor.user_id or self.shared


def message_of(happening: Happening) -> Message:
    """A row of `events` as a message: `state` for state changes, `deleted` for a job that is gone, else `event`."""
    event = happening.type if happening.type in ("state", "deleted") else "event"
    job_id = happening.job_id or happening.data.get("job")
    data = {
        "id": happening.id,
        "job_id": job_id,
        "type": happening.type,
        "time": happening.time,
        "update": happening.update,
        "attempt": happening.attempt,
        "data": happening.data,
    }
    return Message(event, data, job_id, happening.owner_id or happening.user_id, bool(happening.shared), happening.id)


class Subscription:
    """One open stream: a queue of messages for one actor, about one job or all."""

    def __init__(self, actor: Actor, job_id: str | None) -> None:
        self.actor, self.job_id = actor, job_id
        self.queue: asyncio.Queue[Message | None] = asyncio.Queue(WAITING)
        self.ended = False

    def offer(self, message: Message) -> None:
        """Put a message into the queue if it is meant for this stream; a client too slow for it is let go."""
        if self.ended or (self.job_id is not None and message.job_id != self.job_id):
            return
        if not message.visible_to(self.actor):
            return
        try:
            self.queue.put_nowait(message)
        except asyncio.QueueFull:
            self.end()

    def end(self) -> None:
        """Let the stream end after what is being sent."""
        self.ended = True
        while not self.queue.empty():
            self.queue.get_nowait()
        self.queue.put_nowait(None)


class Feed:
    """Looks at the store while anybody listens, and hands what is new to the streams."""

    def __init__(self, store: Store, most_streams: int) -> None:
        self.store, self.most_streams = store, most_streams
        self.looks = 0
        self._streams: set[Subscription] = set()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._floor = 0
        self._next_floor: tuple[int, float] = (0, 0.0)
        self._newest = 0
        self._seen: set[int] = set()
        self._progress: dict[str, Any] = {}

    def close(self) -> None:
        """End all streams; called in the event loop."""
        self._closed = True
        for stream in tuple(self._streams):
            stream.end()
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def check_room(self) -> None:
        """Raise Refused if no further stream may be opened."""
        if self._closed or len(self._streams) >= self.most_streams:
            raise Refused(503, "unavailable", "too many open streams", "close one and try again")

    async def stream(
        self, actor: Actor, job_id: str | None, first: Message, after: int, recheck: Callable[[], Actor]
    ) -> AsyncIterator[bytes]:
        """The bytes of one stream: `first`, what was missed after event `after`, then what happens until it ends.

        recheck: raises once the actor may no longer look; called now and then.
        """
        subscription = Subscription(actor, job_id)
        self._streams.add(subscription)
        try:
            await self._ensure_looking()
            floor = self._floor  # nothing up to here is told by the looks
            told: set[int] = set()
            head = [b"retry: 2000\n\n", first.encode()]
            async for stretch in self._missed(subscription, after):
                for chunk in (*head, *(message.encode() for message in stretch)):
                    yield chunk
                head = []
                told.update(message.id for message in stretch if message.id is not None and message.id > floor)
            async for chunk in self._chunks(subscription, told, recheck):
                yield chunk
        finally:
            self._streams.discard(subscription)

    async def _missed(self, subscription: Subscription, after: int) -> AsyncIterator[list[Message]]:
        """All that happened after an event, in one stretch or more."""

        def read(after: int) -> list[Happening]:
            with self.store.reading() as session:
                return happenings(session, after, BACKLOG, subscription.job_id)

        while True:
            rows = await run_in_threadpool(read, after)
            yield [message for message in map(message_of, rows) if message.visible_to(subscription.actor)]
            if len(rows) < BACKLOG:
                return
            after = rows[-1].id

    async def _chunks(
        self, subscription: Subscription, told: set[int], recheck: Callable[[], Actor]
    ) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        checked = loop.time()
        while not (subscription.ended or self._closed):
            try:
                news = await asyncio.wait_for(subscription.queue.get(), HEARTBEAT_SECONDS)
            except TimeoutError:
                yield b": still here\n\n"
            else:
                if news is None:
                    return
                if news.id not in told:
                    yield news.encode()
            if loop.time() - checked > RECHECK_SECONDS:
                checked = loop.time()
                if not await self._still_allowed(subscription, recheck):
                    return

    async def _still_allowed(self, subscription: Subscription, recheck: Callable[[], Actor]) -> bool:
        try:
            subscription.actor = await run_in_threadpool(recheck)
        except (NotLoggedIn, Forbidden, NotFound):
            return False
        except StoreUnavailable:
            log.info("a stream could not be checked, the database is away")
        return True

    async def _ensure_looking(self) -> None:
        if self._task is None or self._task.done():
            self._newest = self._floor = await run_in_threadpool(self._newest_id)
            self._next_floor = (self._newest, asyncio.get_running_loop().time())
            self._seen.clear()
            self._progress.clear()
            if self._task is None or self._task.done():
                self._task = asyncio.create_task(self._look_again_and_again())

    def _newest_id(self) -> int:
        with self.store.reading() as session:
            return newest_event_id(session)

    async def _look_again_and_again(self) -> None:
        while self._streams:
            try:
                messages = await run_in_threadpool(self._look)
            except StoreUnavailable as error:
                log.info("streams wait: %s", error)
                messages = []
            for message in messages:
                for stream in tuple(self._streams):
                    stream.offer(message)
            self._advance(asyncio.get_running_loop().time())
            await asyncio.sleep(LOOK_SECONDS)

    def _look(self) -> list[Message]:
        self.looks += 1
        with self.store.reading() as session:
            rows = happenings(session, self._floor, BACKLOG + len(self._seen))
            active = active_progress(session)
        found = [message_of(row) for row in rows if row.id not in self._seen]
        self._seen.update(row.id for row in rows)
        self._newest = max([self._newest, *(row.id for row in rows)])
        ticks = {job.id: Message("progress", job.data, job.id, job.owner_id, job.shared) for job in active}
        found += [tick for id_, tick in ticks.items() if self._progress.get(id_) != tick.data]
        self._progress = {id_: tick.data for id_, tick in ticks.items()}
        return found

    def _advance(self, now: float) -> None:
        """Forget numbers so old that nothing lower can become visible any more."""
        number, since = self._next_floor
        if now - since > OVERLAP_SECONDS:
            self._floor = number
            self._seen = {id_ for id_ in self._seen if id_ > number}
            self._next_floor = (self._newest, now)
