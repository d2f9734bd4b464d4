"""Chooses the renderer that `environment.renderer` names, or says why it cannot be had."""

import difflib
import json
import typing
from typing import TYPE_CHECKING

from headrace.services.environment.rendering.conversation import ConversationRenderer, TemplateRenderer
from headrace.services.environment.settings import TEMPLATE
from headrace.wire.errors import ConfigError

if TYPE_CHECKING:
    from renderers import Renderer
    from transformers import PreTrainedTokenizerBase

_NO_FAMILIES = frozenset({"auto", "default", "custom"})
"""Names of the package's configs that stand for no family of models."""


def conversation_renderer(name: str, tokenizer: "PreTrainedTokenizerBase") -> ConversationRenderer:
    """The renderer of a name: `template`, or a family of the package `renderers`.

    Raises ConfigError for a name that is none, for a package or chat template that is missing, and for a tokenizer that
    lacks a token of the family.
    """
    if name == TEMPLATE:
        return TemplateRenderer(tokenizer)
    from headrace.services.environment.rendering.family import FamilyRenderer

    return FamilyRenderer(name, _family(name, tokenizer), tokenizer)


def _family(name: str, tokenizer: "PreTrainedTokenizerBase") -> "Renderer":
    key = f"environment.renderer = {json.dumps(name)}"
    try:
        from renderers import RendererConfig, create_renderer
        from renderers.base import MODEL_RENDERER_MAP, MULTIMODAL_MODELS
        from renderers.configs import config_from_name
    except ImportError as error:
        raise ConfigError(
            f"{key} needs the package renderers ({error}): pip install 'headrace[renderers]', or set "
            f'environment.renderer = "{TEMPLATE}"'
        ) from error
    # The union of all configs, each with its name: the package has no other public list.
    configs = typing.get_args(typing.get_args(RendererConfig)[0])
    names = {str(one.model_fields["name"].default) for one in configs}
    multimodal = {MODEL_RENDERER_MAP[model] for model in MULTIMODAL_MODELS}
    families = names - _NO_FAMILIES - multimodal
    if name in multimodal:
        raise ConfigError(
            f'{key}: the family renders images too, and episodes are text: set environment.renderer = "{TEMPLATE}"'
        )
    if name not in families:
        raise ConfigError(f"{key}: no such family{_meant(name, families)}; there are {_list(families)}")
    try:
        return create_renderer(tokenizer, config_from_name(name))
    except Exception as error:  # Each family raises its own, down to those of a tokenizer that it downloads.
        raise ConfigError(
            f"{key}: the family's renderer cannot be made for the tokenizer in model.path: {error}. Name "
            f'the family of the model, or set environment.renderer = "{TEMPLATE}"'
        ) from error


def _meant(name: str, families: set[str]) -> str:
    close = difflib.get_close_matches(name, [*families, TEMPLATE], n=1)
    return f"; did you mean {json.dumps(close[0])}?" if close else ""


def _list(families: set[str]) -> str:
    return ", ".join([TEMPLATE, *sorted(families)])
