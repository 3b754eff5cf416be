"""The streams' common source: one look for all, rights checked again, slow clients let go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from flash_grpo_studio.app.api import feed as module
from flash_grpo_studio.app.api.errors import Refused
from flash_grpo_studio.app.api.feed import Feed, Message, Subscription
from flash_grpo_studio.app.jobs.access import Actor
from flash_grpo_studio.app.jobs.change import NotFound, tell
from flash_grpo_studio.app.store.engine import StoreUnavailable
from tests.studio import Parts, open_parts

ANN = Actor("ann", "ann", "creator")
FIRST = Message("hello", {}, None, None)


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    return open_parts(f"sqlite:///{tmp_path / 'studio.db'}", tmp_path / "workspace")


def opened(feed: Feed, actor: Actor = ANN, recheck: Callable[[], Actor] | None = None) -> AsyncIterator[bytes]:
    return feed.stream(actor, None, FIRST, 0, recheck or (lambda: actor))


async def read_until(stream: AsyncIterator[bytes], wanted: bytes) -> list[bytes]:
    chunks = []
    async for chunk in stream:
        chunks.append(chunk)
        if wanted in chunk:
            break
    return chunks


def test_one_look_serves_all_and_nobody_listening_means_no_looks(parts: Parts) -> None:
    async def watch() -> int:
        feed = Feed(parts.store, 100)
        streams = [opened(feed, parts.ann) for _ in range(20)]
        for stream in streams:
            await read_until(stream, b"hello")
        before = feed.looks
        await asyncio.sleep(1.7)
        seen = feed.looks - before
        feed.close()
        for stream in streams:
            assert [chunk async for chunk in stream] == []
        idle = feed.looks
        await asyncio.sleep(0.7)
        assert feed.looks == idle
        return seen

    assert 1 <= asyncio.run(watch()) <= 5


def test_no_event_is_told_twice_or_lost_between_what_was_missed_and_what_comes(parts: Parts) -> None:
    async def watch() -> list[bytes]:
        feed = Feed(parts.store, 10)
        job = parts.submit()
        with parts.store.writing() as session:
            for number in range(5):
                tell(session, job.id, "note", number=number)
        stream = opened(feed, parts.ann)
        reading = asyncio.create_task(read_until(stream, b'"number":9'))
        await asyncio.sleep(0.7)
        for number in range(5, 10):
            with parts.store.writing() as session:
                tell(session, job.id, "note", number=number)
            await asyncio.sleep(0.1)
        chunks = await asyncio.wait_for(reading, 10)
        feed.close()
        return chunks

    notes = [chunk for chunk in asyncio.run(watch()) if b'"note"' in chunk]
    assert len(notes) == len(set(notes)) == 10


def test_whoever_missed_much_gets_all_of_it(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BACKLOG", 4)
    job, others = parts.submit(), parts.submit(parts.user("bob"))

    async def watch() -> list[bytes]:
        feed = Feed(parts.store, 10)
        with parts.store.writing() as session:
            for number in range(9):
                tell(session, others.id, "note", number=-1)
                tell(session, job.id, "note", number=number)
        chunks = await asyncio.wait_for(read_until(opened(feed, parts.ann), b'"number":8'), 10)
        feed.close()
        return chunks

    chunks = asyncio.run(watch())
    assert sum(b'"note"' in chunk for chunk in chunks) == 9 and not any(b'"number":-1' in chunk for chunk in chunks)


def test_events_that_become_visible_late_are_still_told(parts: Parts) -> None:
    """PostgreSQL may commit a lower number after a higher one: the look goes back a little."""

    async def watch() -> None:
        feed = Feed(parts.store, 10)
        job = parts.submit()
        await read_until(opened(feed, parts.ann), b"hello")
        feed._floor = 0
        feed._newest = 10**6
        with parts.store.writing() as session:
            tell(session, job.id, "late")
        assert "late" in [message.data["type"] for message in await asyncio.to_thread(feed._look)]
        feed.close()

    asyncio.run(watch())


def test_a_stream_ends_with_the_right_to_look_and_survives_the_database(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RECHECK_SECONDS", 0.1)
    monkeypatch.setattr(module, "HEARTBEAT_SECONDS", 0.05)
    answers: list[Exception | Actor] = [parts.ann, StoreUnavailable("away"), parts.ann, NotFound("gone")]

    def recheck() -> Actor:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def watch() -> None:
        feed = Feed(parts.store, 10)
        chunks = [chunk async for chunk in opened(feed, parts.ann, recheck)]
        assert any(chunk.startswith(b":") for chunk in chunks)
        feed.close()

    asyncio.run(asyncio.wait_for(watch(), 20))
    assert answers == []


def test_there_is_room_for_so_many(parts: Parts) -> None:
    async def watch() -> None:
        feed = Feed(parts.store, 1)
        feed.check_room()
        stream = opened(feed)
        await read_until(stream, b"hello")
        with pytest.raises(Refused):
            feed.check_room()
        feed.close()

    asyncio.run(watch())


def test_a_slow_client_is_let_go_and_foreign_jobs_are_not_offered() -> None:
    async def fill() -> None:
        mine, foreign = Message("state", {}, "job", "ann", id=1), Message("state", {}, "job", "bob", id=2)
        subscription = Subscription(ANN, None)
        subscription.offer(foreign)
        assert subscription.queue.empty()
        subscription.offer(Message("state", {}, "job", "bob", shared=True))
        for _ in range(module.WAITING):
            subscription.offer(mine)
        assert subscription.ended
        assert subscription.queue.get_nowait() is None
        assert Subscription(ANN, "other").offer(mine) is None

    asyncio.run(fill())


def test_messages_are_one_line_whatever_they_hold() -> None:
    text = Message("event", {"message": "a\nb\r\n\u2028data: x\ud800"}, None, None, id=3).encode()
    assert text.startswith(b"id: 3\nevent: event\ndata: {") and text.endswith(b"\n\n")
    assert text.count(b"\n") == 4
