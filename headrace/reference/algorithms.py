"""The algorithms for people and programs: what each is made of, its defaults, its source. Needs no torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.services.trainer.algorithms.recipes import find_recipe, recipes
from headrace.services.trainer.algorithms.recipes.recipe import AlgorithmRecipe
from headrace.services.trainer.config.algorithm import AlgorithmTable
from headrace.wire.config.nearest import unknown
from headrace.wire.errors import ConfigError

_ALWAYS = ("advantage", "policy_loss", "aggregation", "anchor")
"""The parts, listed for every algorithm, regardless of the table's own default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """One algorithm."""

    name: str
    recipe: AlgorithmRecipe
    parts: dict[str, str]
    """Advantage, policy loss, aggregation, anchor of the ratios, place of the KL, needs, critic, greedy baseline."""
    defaults: dict[str, object]
    """All keys of `[algorithm]` with this algorithm's defaults."""

    def as_json(self) -> dict[str, object]:
        """JSON values only."""
        words = {key: getattr(self.recipe, key) for key in ("title", "formula", "source", "use", "notes")}
        tables = {name: dict(values) for name, values in self.recipe.tables.items()}
        settings = dict(self.recipe.settings)
        return {
            "name": self.name,
            **words,
            "parts": self.parts,
            "settings": settings,
            "defaults": self.defaults,
            "suggested": tables,
        }


def describe(name: str = "") -> list[Description]:
    """All algorithms by name, or one; raises ConfigError for a name that is none."""
    if name and name not in recipes():
        raise ConfigError(f"algorithm {unknown(name, recipes())}")
    return [_describe(each) for each in ([name] if name else recipes())]


def _describe(name: str) -> Description:
    recipe, table = find_recipe(name), AlgorithmTable(name=name)
    defaults = table.model_dump(mode="json")
    parts = {key: str(defaults[key]) for key in _ALWAYS}
    parts["kl"] = f"{table.kl_estimator} in the {table.kl_in}, {table.kl_coef:g}" if table.kl_coef else "off"
    needs = [need.name.lower().replace("_", " ") for need in table.estimator.needs if need.name]
    parts["needs"] = ", ".join(needs) or "nothing"
    parts["critic"] = "yes" if table.needs_critic else "no"
    parts["baseline rollout"] = "greedy" if table.greedy_last else "none"
    return Description(name=name, recipe=recipe, parts=parts, defaults=defaults)


def as_text(found: Sequence[Description], *, whole: bool) -> str:
    """For a terminal."""
    if whole:
        return "\n\n".join(_page(one) for one in found)
    width = max(len(one.name) for one in found)
    lines = [f"{one.name:<{width}}  {one.recipe.use}" for one in found]
    return "\n".join([*lines, "", "headrace algorithms NAME describes one in full"])


def _page(one: Description) -> str:
    recipe = one.recipe
    head = [f"{one.name}: {recipe.title}", f"  {recipe.formula}", f"  source: {recipe.source}", f"  use: {recipe.use}"]
    if recipe.notes:
        head.append(f"  note: {recipe.notes}")
    parts = [f"  {key}: {value}" for key, value in one.parts.items()]
    others = [f"  suggested: [{table}] {in_toml(values)}" for table, values in recipe.tables.items()]
    keys = [f"    {key} = {_value(value)}" for key, value in one.defaults.items() if key != "correction"]
    return "\n".join([*head, *parts, *others, "  [algorithm]", *keys])


def in_toml(values: Mapping[str, object]) -> str:
    """`key = value` of each, with commas between."""
    return ", ".join(f"{key} = {_value(value)}" for key, value in values.items())


def _value(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case float():
            return f"{value:g}"
        case str():
            return f'"{value}"'
        case Mapping():
            return "{ " + in_toml(value) + " }"
        case _:
            return str(value)
