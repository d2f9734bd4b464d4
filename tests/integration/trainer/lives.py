"""What the tests of a trainer's lives share: how long one is, and what its journal says."""

from headrace.wire.journal import BatchRecord, read_journal

STEPS = 6


def facts(settings):
    return [item.record for item in read_journal(settings.run_dir / "journal")]


def trained(settings):
    return [(record.step, record.group_indices) for record in facts(settings) if isinstance(record, BatchRecord)]
