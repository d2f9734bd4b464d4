import asyncio

import verifiers.v1 as vf


class Tools(vf.Toolset[vf.ToolsetConfig]):
    async def setup(self) -> None:
        await asyncio.sleep(100)


if __name__ == "__main__":
    Tools.run()
