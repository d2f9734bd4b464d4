"""Streams between the services: one protocol, on Redis."""

from headrace.wire.streams.protocol import (
    CONSUMER_GROUP,
    EVALUATION_FLOW,
    TRAINING_FLOW,
    Broker,
    BrokerMemory,
    Consumer,
    Entry,
    Put,
    StreamName,
    StreamStats,
)

__all__ = [
    "CONSUMER_GROUP",
    "EVALUATION_FLOW",
    "TRAINING_FLOW",
    "Broker",
    "BrokerMemory",
    "Consumer",
    "Entry",
    "Put",
    "StreamName",
    "StreamStats",
]
