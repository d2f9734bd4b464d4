"""Code that tests run inside containers, with the user and the groups that these have; each prints JSON."""

WRITABLE = """
import json, os
found = []
for folder, names, files in os.walk('/runs', onerror=lambda error: None):
    found += [path for path in (folder, *(os.path.join(folder, name) for name in files)) if os.access(path, os.W_OK)]
print(json.dumps(sorted(found)))
"""
"""Folders and files below /runs that may be written to."""
TRY = """
import json, os, sys
def outcome_of(act):
    try:
        act()
    except OSError as error:
        return error.strerror
    return ''
def create(path):
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
    os.unlink(path)
def act(verb, path):
    return {
        'create': lambda: create(os.path.join(path, 'mine.jsonl')),
        'append': lambda: os.close(os.open(path, os.O_WRONLY | os.O_APPEND)),
        'rename': lambda: os.rename(path, path + '.gone'),
        'chmod': lambda: os.chmod(path, 0o777),
        'read': lambda: os.close(os.open(path, os.O_RDONLY)),
    }[verb]
print(json.dumps([outcome_of(act(*one)) for one in json.loads(sys.argv[1])]))
"""
"""Reasons for which acts, each a verb and a path, were refused; empty for those that were not."""
LIST = """
import json, os, sys
walked = os.walk(sys.argv[1], onerror=lambda error: None)
print(json.dumps(sorted(os.path.join(folder, name) for folder, *names in walked for part in names for name in part)))
"""
"""Everything in a folder, but for folders that are removed meanwhile."""
GRPC_WAYS = """
import asyncio, json, pathlib, sys
import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
own, *addresses = pathlib.Path(sys.argv[1]), *sys.argv[2:]
ca, chain, key = (own.joinpath(name).read_bytes() for name in ('ca.crt', 'tls.crt', 'tls.key'))
async def health(address, credentials):
    role = address.partition(':')[0]
    options = (('grpc.ssl_target_name_override', f'{role}.headrace.internal'),)
    if credentials is None:
        opened = grpc.aio.insecure_channel(address)
    else:
        opened = grpc.aio.secure_channel(address, credentials, options)
    async with opened as channel:
        try:
            await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=20)
        except grpc.aio.AioRpcError as error:
            return error.code().name
        return 'OK'
async def main():
    without, whole = grpc.ssl_channel_credentials(ca), grpc.ssl_channel_credentials(ca, key, chain)
    print(json.dumps([[await health(address, one) for one in (None, without, whole)] for address in addresses]))
asyncio.run(main())
"""
"""How health checks of gRPC end at each address: in the clear, over TLS, and with the certificate in a folder."""
BROKER_WAYS = """
import json, pathlib, socket, ssl, sys
import redis
context = ssl.create_default_context(cafile=sys.argv[1])
def said(lines, over):
    with socket.create_connection(('valkey', 6379), timeout=20) as plain:
        end = context.wrap_socket(plain, server_hostname='valkey') if over else plain
        try:
            end.sendall(lines)
            return end.recv(100).decode(errors='replace')
        except OSError as error:
            return type(error).__name__
own = redis.Redis.from_url(pathlib.Path(sys.argv[2]).read_text().strip(), socket_timeout=20)
print(json.dumps([*(said(b'PING\\r\\n', over) for over in (False, True)), repr(own.ping())]))
"""
"""What the broker says to an anonymous client, in the clear and over TLS, and to the owner of the URL in a file."""
