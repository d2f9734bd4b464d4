import sys
from pathlib import Path

import verifiers.v1 as vf
from verifiers.v1.harness import Harness

PROGRAM = str(Path(__file__).parent / "program.py")


class ForksHarness(Harness[vf.HarnessConfig]):
    """Runs a program on the `openai` client; which conversations it has, the task says."""

    NEEDS_CONTAINER = False
    EXECUTES_CODE = False

    async def launch(self, ctx, trace, runtime, endpoint, secret, mcp_urls, data, tool_interception_url=None):
        return await runtime.run_program(
            [sys.executable, PROGRAM, endpoint, secret, ctx.model, data.kind, data.witness], {}
        )
