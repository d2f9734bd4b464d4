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
def told(act):
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
print(json.dumps([told(act(*one)) for one in json.loads(sys.argv[1])]))
"""
"""Reasons for which acts, each a verb and a path, were refused; empty for those that were not."""
LIST = """
import json, os, sys
walked = os.walk(sys.argv[1], onerror=lambda error: None)
print(json.dumps(sorted(os.path.join(folder, name) for folder, *names in walked for part in names for name in part)))
"""
"""Everything in a folder, but for folders that are removed meanwhile."""
