"""The Celery application as app and worker share it: JSON only, one fan-out exchange, no results."""

from __future__ import annotations

from celery import Celery
from kombu import Exchange
from kombu.common import Broadcast

from flash_grpo_studio.app.jobs.dispatch import EXCHANGE


def fan_out() -> Exchange:
    """Where messages go, and from there to every worker that listens. Senders must declare it: to Redis, an exchange
    that a process has not declared is an ordinary one, and a message into it reaches nobody.
    """
    return Exchange(EXCHANGE, type="fanout", durable=False)


def celery_app(broker_url: str) -> Celery:
    """A Celery application for this broker; every worker hears every message, so that none waits behind a busy one."""
    app = Celery("flash_grpo_studio", broker=broker_url)
    app.conf.update(
        task_serializer="json",
        accept_content=["json"],
        result_backend=None,
        task_ignore_result=True,
        task_queues=(Broadcast(EXCHANGE, exchange=fan_out(), routing_key=EXCHANGE),),
        task_default_queue=EXCHANGE,
        task_acks_late=False,
        broker_connection_retry_on_startup=True,
        broker_connection_timeout=3,
        broker_transport_options={"socket_connect_timeout": 3, "socket_timeout": 5},
        worker_hijack_root_logger=False,
        worker_send_task_events=False,
        enable_utc=True,
    )
    return app
