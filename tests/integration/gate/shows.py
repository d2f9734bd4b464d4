"""Shows what a process sees of its start."""

import json
import os
import sys

seen = [__name__, sys.argv[1:], sys.orig_argv[1:], os.getcwd(), os.environ.get("HEADRACE_OWN"), sys.stdin.read()]
sys.stdout.write(json.dumps(seen))
