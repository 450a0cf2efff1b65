"""Messages of nova's services that come twice, or never: taken from and put into RabbitMQ by hand."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import kombu

from .layout import RABBITMQ

_EXCHANGE = "nova"


class Tap:
    """Copies of what is sent to a topic, such as ``compute.host3``, while it is open."""

    def __init__(self, channel: Any, topic: str) -> None:
        self._channel = channel
        self._topic = topic
        exchange = kombu.Exchange(_EXCHANGE, no_declare=True)
        name = f"steadyvm-tap-{uuid.uuid4()}"
        self._queue = kombu.Queue(name, exchange, routing_key=topic, exclusive=True, auto_delete=True)(
            channel
        )
        self._queue.declare()

    def taken(self, method: str) -> list[Any]:
        """Copies of the calls of a method, so far."""
        found = []
        while (message := self._queue.get(no_ack=True)) is not None:
            if _content(message)["method"] == method:
                found.append(message)
        return found

    def again(self, message: Any, new: bool) -> None:
        """Sends a copy: as the broker delivers it twice, or ``new`` as a sender that sends it twice."""
        body = message.body
        if new:
            outer = json.loads(body)
            inner = json.loads(outer["oslo.message"])
            inner["_unique_id"] = uuid.uuid4().hex
            body = json.dumps({**outer, "oslo.message": json.dumps(inner)})
        kombu.Producer(self._channel).publish(
            body,
            exchange=_EXCHANGE,
            routing_key=self._topic,
            content_type=message.content_type,
            content_encoding=message.content_encoding,
            headers=message.headers,
        )


@contextmanager
def tap(topic: str) -> Iterator[Tap]:
    """Listens to a topic."""
    with _channel() as channel:
        yield Tap(channel, topic)


def lose(queue: str) -> list[str]:
    """Takes what waits in a queue whose service does not run; the methods that nobody will hear of."""
    with _channel() as channel:
        found = []
        waiting = kombu.Queue(queue, no_declare=True)(channel)
        while (message := waiting.get(no_ack=True)) is not None:
            found.append(str(_content(message)["method"]))
        return found


def _content(message: Any) -> Any:
    return json.loads(json.loads(message.body)["oslo.message"])


@contextmanager
def _channel() -> Iterator[Any]:
    with kombu.Connection(f"amqp://guest:guest@127.0.0.1:{RABBITMQ}//") as connection:
        yield connection.default_channel
