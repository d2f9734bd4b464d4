"""What a power failure may leave of a file: of the writes since its last fsync any sectors, none, or a shorter file."""

import itertools
from collections.abc import Iterator

SECTOR = 512


def leftovers(before: bytes, after: bytes, *, most: int = 6) -> Iterator[bytes]:
    """Every file that a crash may leave between two fsyncs: `before` is on disk, `after` was being written.

    Each sector that differs is the old or the new one (zeros where there was none), in any combination of the first and
    the last `most` / 2 of them; and the new file may be cut at each sector, or a few bytes behind one.
    """
    size = max(len(before), len(after))
    old, new = before.ljust(size, b"\0"), after.ljust(size, b"\0")
    sectors = [at for at in range(0, size, SECTOR) if old[at : at + SECTOR] != new[at : at + SECTOR]]
    chosen = sorted({*sectors[: most // 2], *sectors[-(most // 2) :]})
    for count in range(len(chosen) + 1):
        for lost in itertools.combinations(chosen, count):
            data = bytearray(new)
            for at in lost:
                data[at : at + SECTOR] = old[at : at + SECTOR]
            yield bytes(data)
            # The length reached the disk, or did not.
            yield bytes(data[: len(after)])
            yield bytes(data[: len(before)]) if len(before) <= len(after) else bytes(data)
    for at in range(len(before) - len(before) % SECTOR, len(after), SECTOR):
        for cut in (at, at + 1, at + 13, at + 300):
            if len(before) <= cut <= len(after):
                yield after[:cut]


def lost_tails(before: bytes, after: bytes, unit: int = SECTOR) -> Iterator[bytes]:
    """Those in which everything before some sector or page border was written and nothing behind it."""
    for at in range(-(-len(before) // unit) * unit, len(after), unit):
        yield after[:at].ljust(len(after), b"\0")
        yield after[:at].ljust(-(-len(after) // unit) * unit, b"\0")
