import builtins
import collections
import math
import typing

from headrace.services.reward.sandbox.inside.prelude import names


def test_the_usual_names_are_there():
    found = names()
    assert found["List"] is vars(typing)["List"]
    assert found["deque"] is collections.deque
    assert found["collections"] is collections and found["math"] is math
    assert {"heappush", "lru_cache", "accumulate", "bisect_left", "inf", "Counter", "Optional", "sys"} <= found.keys()


def test_no_builtin_is_another():
    assert not names().keys() & vars(builtins).keys()
