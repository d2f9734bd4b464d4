"""Streams on Redis 7.0+ or Valkey 7.2+: the only package that imports redis."""

from headrace.wire.streams.redis.broker import RedisBroker
from headrace.wire.streams.redis.consumer import RedisConsumer
from headrace.wire.streams.redis.facts import ServerFacts, server_facts

__all__ = ["RedisBroker", "RedisConsumer", "ServerFacts", "server_facts"]
