"""The tables of docs/gpu.md are what the memory plan says now."""

import pytest

from headrace.doctor.memory_plan import GB
from headrace.reference import sizing_docs


@pytest.mark.parametrize("memory", sizing_docs.MEMORIES)
def test_a_recipe_fits_and_the_ones_before_it_do_not(memory: int) -> None:
    names = list(sizing_docs.RECIPES)
    order = dict.fromkeys(names, 0)
    for shape in sizing_docs.MODELS.values():
        for gpus in sizing_docs.GPUS:
            found = sizing_docs.recipe(shape, gpus, memory)
            if found is not None:
                order[found[0]] += 1
                assert found[1] <= memory * GB and found[2] <= sizing_docs._HOST * GB
    assert sum(order.values()) and order["full"]
